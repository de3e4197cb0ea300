//! Bytes of a request that one connection is lost at. It knows no protocol: a request is met where all its bytes arrive
//! at once, as short ones do.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

/// What the connection loses that meets a tripwire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The request: it never reaches the server, and the connection is reset on both sides.
    Request,
    /// The reply: the request reaches the server, and as soon as that answers, the connection is reset on both sides.
    Reply,
    /// Every reply from then on: the request reaches the server, and the connection stays open and mute.
    Silence,
}

#[derive(Debug, Default)]
pub(super) struct Tripwire {
    set: Mutex<Option<(Vec<u8>, Loss)>>,
    trips: AtomicUsize,
}

impl Tripwire {
    pub(super) fn set(&self, bytes: Vec<u8>, loss: Loss) {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = Some((bytes, loss));
    }

    pub(super) fn trips(&self) -> usize {
        self.trips.load(Ordering::Acquire)
    }

    /// What the connection loses that sends this. One tripwire is met once.
    pub(super) fn met_by(&self, request: &[u8]) -> Option<Loss> {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, loss) =
            set.take_if(|(bytes, _)| request.windows(bytes.len().max(1)).any(|window| window == &bytes[..]))?;
        self.trips.fetch_add(1, Ordering::Release);
        Some(loss)
    }
}
