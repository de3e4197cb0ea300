//! Faults that are set while the provider runs, on top of those of its settings: what a provider has on a bad day. Pure:
//! drawn from the key, and without a clock, so one lasts until the next is set.

use serde::Deserialize;

use super::faults::{FaultKind, fold, mix, share};

/// What goes wrong with a call: a fault as the settings know it, or a refusal that only the weather brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) kind: TroubleKind,
    /// How much longer a slow answer takes, in milliseconds.
    pub(super) slow_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TroubleKind {
    /// As the settings draw it.
    Fault(FaultKind),
    /// 429 with `Retry-After: 1`, and nothing was charged.
    TooManyRequests,
}

impl TroubleKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Fault(kind) => kind.as_str(),
            Self::TooManyRequests => TOO_MANY_REQUESTS,
        }
    }

    /// Whether the money moves all the same.
    pub(super) fn charges(self) -> bool {
        match self {
            Self::Fault(kind) => kind.charges(),
            Self::TooManyRequests => false,
        }
    }
}

const TOO_MANY_REQUESTS: &str = "too_many_requests";
const UNAUTHORIZED: &str = "unauthorized";

/// The body of `POST /faults`. An empty one ends whatever was set before.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    /// Words of faults, `too_many_requests`, `unauthorized`.
    #[serde(default)]
    kinds: Vec<String>,
    /// The share of keys that meet one.
    #[serde(default = "everybody")]
    share: f64,
    /// How many tries of a key may meet one, over all weathers.
    #[serde(default = "once")]
    per_key: u32,
    /// How much longer a slow answer takes.
    #[serde(default)]
    slow_ms: u64,
}

fn everybody() -> f64 {
    1.0
}

fn once() -> u32 {
    1
}

/// What was set last.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Weather {
    kinds: Vec<TroubleKind>,
    share: f64,
    per_key: u32,
    slow_ms: u64,
    /// Every call is refused with 401, whatever its key.
    pub(super) unauthorized: bool,
}

impl Weather {
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let wire: Wire = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if !(0.0..=1.0).contains(&wire.share) {
            return Err(format!("share is {}, expected 0 to 1", wire.share));
        }
        let mut weather = Self { share: wire.share, per_key: wire.per_key, slow_ms: wire.slow_ms, ..Self::default() };
        for word in &wire.kinds {
            match word.as_str() {
                UNAUTHORIZED => weather.unauthorized = true,
                TOO_MANY_REQUESTS => weather.kinds.push(TroubleKind::TooManyRequests),
                word => weather
                    .kinds
                    .push(TroubleKind::Fault(word.parse().map_err(|_| {
                        format!("{word:?} is neither a fault, {TOO_MANY_REQUESTS} nor {UNAUTHORIZED}")
                    })?)),
            }
        }
        Ok(weather)
    }

    /// The trouble of a call with this key, which has met so many before.
    pub(super) fn draw(&self, key: &str, met: u32) -> Option<Trouble> {
        if met >= self.per_key || self.kinds.is_empty() || share(mix(fold(SUFFERS, key))) >= self.share {
            return None;
        }
        let drawn = mix(fold(KIND ^ u64::from(met), key)) % self.kinds.len() as u64;
        let kind = *self.kinds.get(usize::try_from(drawn).ok()?)?;
        Some(Trouble { kind, slow_ms: self.slow_ms })
    }
}

const SUFFERS: u64 = 0x5745_4154;
const KIND: u64 = 0x4845_5200_0000_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_what_was_set() {
        let calm = Weather::parse(b"{}").unwrap();
        assert_eq!(calm.draw("key", 0), None);
        assert!(!calm.unauthorized);
    }

    #[test]
    fn a_share_of_the_keys_meets_it_as_often_as_is_allowed() {
        let weather =
            Weather::parse(br#"{"kinds":["too_many_requests","slow_answer"],"share":0.5,"per_key":2,"slow_ms":30}"#)
                .unwrap();
        let suffering = (0..1_000).filter(|n| weather.draw(&n.to_string(), 0).is_some()).count();
        assert!((400..600).contains(&suffering), "{suffering} of 1,000");
        let key = (0..).map(|n| n.to_string()).find(|key| weather.draw(key, 0).is_some()).unwrap();
        assert!(weather.draw(&key, 1).is_some_and(|trouble| trouble.slow_ms == 30));
        assert_eq!(weather.draw(&key, 2), None);
    }

    #[test]
    fn what_it_does_not_know_is_refused() {
        for body in [r#"{"kinds":["hail"]}"#, r#"{"share":2}"#, r#"{"kind":["slow_answer"]}"#, "x"] {
            assert!(Weather::parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
