//! The application of the model: it calls an outside world that succeeds, fails, refuses, hesitates and breaks, and
//! writes one line for each event that was performed.

use std::time::Duration;

use async_trait::async_trait;
use core_delivery::claim::Claimed;
use core_delivery::event::EventId;
use core_delivery::ports::{Admission, Effect, ErrorClass, EventHandler, HandlerError, Refusal, StoreError};

use crate::executor::Life;
use crate::order::Call;
use crate::probe::{Kind, Probe, number_of};
use crate::unit::{Reserved, Unit};
use crate::world::{Context, SCRIPTED_PANIC};

pub struct Handler {
    pub context: Context,
    pub life: Life,
}

/// A call that runs. The kernel may end it with its process only.
struct Running<'a> {
    handler: &'a Handler,
    probe: &'a Probe,
    has_ended: bool,
}

impl Running<'_> {
    fn ends(&mut self, how: &str, call: Call) {
        self.has_ended = true;
        let Context { choices, truth, .. } = &self.handler.context;
        choices.note(|| format!("call of event {} {how}", self.probe.content.number));
        truth.call_ended(self.probe, call);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let truth = &self.handler.context.truth;
        if self.has_ended {
            return;
        }
        truth.in_doubt(self.probe.id);
        if truth.lives(self.handler.life) {
            truth.report("calls", format!("the call of event {} was cut off", number_of(self.probe.id)));
        }
    }
}

#[async_trait]
impl EventHandler<Probe, Unit> for Handler {
    type Receipt = EventId;

    async fn admit(&self, unit: &mut Unit, events: &[Claimed<Probe>]) -> Result<Vec<Admission>, StoreError> {
        let is_refused = |claimed: &&Claimed<Probe>| claimed.event().content.kind() == Kind::Refused;
        let admitted = events.iter().filter(|claimed| !is_refused(claimed)).map(|claimed| claimed.event().id);
        unit.reserve(admitted.collect(), Reserved::Yes).await?;
        let refused = || Admission::Refused(Refusal::new(ErrorClass::PERMANENT, "a refused event"));
        Ok(events.iter().map(|claimed| if is_refused(&claimed) { refused() } else { Admission::Proceed }).collect())
    }

    async fn retract(&self, unit: &mut Unit, failed: &[Claimed<Probe>]) -> Result<(), StoreError> {
        unit.reserve(failed.iter().map(|claimed| claimed.event().id).collect(), Reserved::No).await
    }

    async fn perform(&self, event: &Claimed<Probe>) -> Result<EventId, HandlerError> {
        let (probe, Context { choices, executor, profile, truth, .. }) = (event.event(), &self.context);
        choices.note(|| format!("call of event {} starts in life {}", probe.content.number, self.life));
        truth.call_started(probe);
        let mut running = Running { handler: self, probe, has_ended: false };
        if choices.chance(profile.slow) {
            executor.sleep(Duration::from_millis([600, 100, 1_500, 6_000][choices.pick(4)])).await;
        } else {
            executor.pause().await;
        }
        if probe.content.kind() == Kind::Deadly {
            choices.note(|| format!("event {} kills process {}", probe.content.number, self.life));
            truth.kills(self.life);
            return std::future::pending().await;
        }
        if !choices.chance(profile.handler) {
            running.ends("succeeds", Call::Succeeded);
            return Ok(probe.id);
        }
        let transient = |effect, retry_after| HandlerError::Transient { reason: "503".into(), retry_after, effect };
        let (how, call, error) = match choices.pick(7) {
            0 => ("fails for a while", Call::Failed, transient(Effect::None, None)),
            1 => ("fails for a while, effect unknown", Call::Failed, transient(Effect::Unknown, None)),
            2 => ("is throttled", Call::Failed, transient(Effect::None, Some(Duration::from_secs(3)))),
            3 => ("is refused", Call::Failed, HandlerError::Permanent(Refusal::new(ErrorClass::PERMANENT, "402"))),
            4 => ("halts", Call::Halted, HandlerError::Halt { reason: "credentials".into(), effect: Effect::None }),
            5 => ("halts, effect unknown", Call::Halted, {
                HandlerError::Halt { reason: "credentials".into(), effect: Effect::Unknown }
            }),
            _ => {
                running.ends("panics", Call::Failed);
                truth.in_doubt(probe.id);
                panic!("{SCRIPTED_PANIC}");
            }
        };
        running.ends(how, call);
        let effect = match &error {
            HandlerError::Transient { effect, .. } | HandlerError::Halt { effect, .. } => *effect,
            HandlerError::Permanent(_) => Effect::None,
        };
        if effect == Effect::Unknown {
            truth.in_doubt(probe.id);
        }
        Err(error)
    }

    async fn record(&self, unit: &mut Unit, done: &[(Claimed<Probe>, EventId)]) -> Result<(), StoreError> {
        let Context { choices, profile, truth, .. } = &self.context;
        if choices.chance(profile.panics) {
            choices.note(|| format!("a unit of life {} panics", self.life));
            truth.may_fail(self.life);
            panic!("{SCRIPTED_PANIC}");
        }
        for (claimed, receipt) in done {
            assert_eq!(claimed.event().id, *receipt, "a receipt belongs to its event");
            unit.write(claimed.event()).await?;
        }
        Ok(())
    }
}
