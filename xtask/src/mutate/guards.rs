//! The guards that are taken out, one at a time: where each is, what stands there without it, and which tests must
//! notice. A guard whose text is not there exactly once is an error: then the table no longer tells the truth.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use super::suites::Suite::{self, Broker, Kernel, Payment, Rules, Service, Store};

/// A guard in the sources.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) name: &'static str,
    /// What happens without it.
    pub(super) protects: &'static str,
    /// From the workspace's root.
    pub(super) file: &'static str,
    /// It, as it stands there, once.
    pub(super) text: &'static str,
    pub(super) without: &'static str,
    pub(super) suite: Suite,
    /// The tests by parts of their names; all of the suite if there are none.
    pub(super) tests: &'static [&'static str],
}

/// All of them, those of a crate together, so that less is compiled.
pub(super) const GUARDS: &[Guard] = &[
    Guard {
        name: "copy_acknowledged",
        protects: "an event is settled although its copy was not acknowledged",
        file: "crates/core-delivery/src/delivery/lane_driver.rs",
        text: "courier::deliver(&**publisher, &**runtime, health, metrics, &from, sent.copy).await;",
        without: "drop((runtime, health, metrics, publisher.publish(&sent.copy).await));",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "ticket_epoch",
        protects: "a result of an earlier assignment moves the watermark of this one (D-5)",
        file: "crates/core-delivery/src/delivery/watermark.rs",
        text: "if ticket.epoch != self.epoch {",
        without: "if false {",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "watermark_contiguous",
        protects: "the watermark passes a record without a verdict (D-3)",
        file: "crates/core-delivery/src/delivery/watermark.rs",
        text: ".filter(|entry| entry.settled.is_some()) {",
        without: " {",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "offset_behind_store",
        protects: "Kafka's offset passes the position in the store (D-11)",
        file: "crates/core-delivery/src/delivery/lane_driver/stored.rs",
        text: "self.lane.report(stored)",
        without: "self.lane.report(self.lane.position().map_or(stored, |position| position.max(stored)))",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "lower_position",
        protects: "a lane starts from Kafka's offset although the database is behind it (D-11)",
        file: "crates/core-delivery/src/delivery/start.rs",
        text: "(stored, Some(Alarm::StoreIsBehind { committed, stored }))",
        without: "(committed, Some(Alarm::StoreIsBehind { committed, stored }))",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "foreign_offset_refused",
        protects: "offsets of another consumer are taken over although their claims are missing",
        file: "crates/core-delivery/src/delivery/start.rs",
        text: "(Some(committed), None) => return Start::Refused { committed },",
        without: "(Some(committed), None) => (committed, None),",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "lost_commit_restarts",
        protects: "a lane goes on although it is unknown what the store holds",
        file: "crates/core-delivery/src/delivery/lane_driver/units.rs",
        text: "if interruption.position_is_unknown() {",
        without: "if false {",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "duplicate_skipped",
        protects: "an event that is claimed already is handled again (D-1)",
        file: "crates/core-delivery/src/delivery/batch/unit.rs",
        text: "Claim::AlreadyProcessed => {}",
        without: "Claim::AlreadyProcessed => fresh.push(delivery),",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "expired_refused",
        protects: "an event whose claim may have expired is handled again (D-9)",
        file: "crates/core-delivery/src/delivery/batch/unit.rs",
        text: "Claim::Expired => expired.push(Arc::clone(&delivery.event)),",
        without: "Claim::Expired => fresh.push(delivery),",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "release_on_failure",
        protects: "the claim of a failed event stays, and its retry is taken for a duplicate",
        file: "crates/core-delivery/src/delivery/batch/unit.rs",
        text: "unit.release(&changes.released).await?;",
        without: "",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "retract_on_failure",
        protects: "what was reserved for a failed event stays reserved",
        file: "crates/core-delivery/src/delivery/batch/unit.rs",
        text: "handler.retract(unit, &changes.retracted).await?;",
        without: "",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "keys_sorted",
        protects: "two units claim the same keys in opposite order and deadlock",
        file: "crates/core-delivery/src/delivery/batch/unit.rs",
        text: "        keys.sort_unstable();\n",
        without: "",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "claims_relied_on",
        protects: "the position passes events whose claims a restored database has lost (D-11)",
        file: "crates/core-delivery/src/delivery/batch/unit.rs",
        text: "return Err(StoreError::Moved { context });",
        without: "drop(context);",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "receipt_kept",
        protects: "an event whose unit did not commit is performed again although its receipt is known",
        file: "crates/core-delivery/src/delivery/batch/unit.rs",
        text: "self.unrecorded.receipts.extend(receipts);",
        without: "drop(receipts);",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "doubt_travels",
        protects: "a copy forgets that an earlier try may have moved the money",
        file: "crates/core-delivery/src/delivery/lane_driver.rs",
        text: "journey.in_doubt |= self.pipeline.batch.doubts.take(delivery.event.id());",
        without: "",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "doubt_keeps_reservation",
        protects: "the order of an event in doubt is let go, and a second event can charge it",
        file: "crates/core-delivery/src/delivery/verdict.rs",
        text: "effect == Effect::Never || effect == Effect::None && !in_doubt",
        without: "effect == Effect::Never || effect == Effect::None && (!in_doubt || in_doubt)",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "reservation_left_is_doubt",
        protects: "a second delivery of an event in doubt fails cleanly and lets its order go",
        file: "crates/core-delivery/src/delivery/batch/unit.rs",
        text: "} else if admission == Admission::ProceedInDoubt {",
        without: "} else if false {",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "storm",
        protects: "a topic is drained into the dead letters while everything fails",
        file: "crates/core-delivery/src/delivery/storm.rs",
        text: "self.rages_until.is_some()",
        without: "false",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "outage_moves_nothing",
        protects: "an outage sends events to the dead letters",
        file: "crates/core-delivery/src/delivery/lane_driver/units.rs",
        text: "Outcome::Postponed => postponed.push(delivery),",
        without: "Outcome::Postponed => self.failed(&delivery, &crate::delivery::verdict::Failure::dead(\n                    crate::ports::ErrorClass::REJECTED, \"away\")),",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "due_awaited",
        protects: "an event in a tier is tried before it is due",
        file: "crates/core-delivery/src/delivery/lane.rs",
        text: "self.due.is_none_or(|due| due <= now)",
        without: "self.due.is_none_or(|due| due <= now || due > now)",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "future_refused",
        protects: "an id from the future is claimed, beyond the reach of every floor",
        file: "crates/core-delivery/src/delivery/lane.rs",
        text: "if made_at > now.plus(self.clock_skew) {",
        without: "if made_at > now.plus(self.clock_skew).plus(Duration::from_secs(1_000_000)) {",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "straggler_deadline",
        protects: "one slow call holds the transaction of its whole batch open",
        file: "crates/core-delivery/src/delivery/perform.rs",
        text: "() = late => break,",
        without: "() = late => {}",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "key_order_in_batch",
        protects: "events of a key are performed side by side (D-6)",
        file: "crates/core-delivery/src/delivery/perform.rs",
        text: "*by_key.entry(claimed.event().key().to_owned())",
        without: "*by_key.entry(claimed.event().id().to_string())",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "straggler_holds_key",
        protects: "a later event of a key overtakes one whose call still runs (D-6)",
        file: "crates/core-delivery/src/delivery/lane.rs",
        text: "let held = straggling.iter().any(|straggler| straggler.holds(delivery));",
        without: "let held = straggling.is_empty() && delivery.due.is_some_and(|due| due > now);",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "drain_waits",
        protects: "a lane is given away while its unit or its copies are under way",
        file: "crates/core-delivery/src/delivery/lane_driver.rs",
        text: "if self.draining && self.unit.is_none() && self.copies.is_empty() && self.stragglers.is_empty() {",
        without: "if self.draining {",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "panic_is_loud",
        protects: "a unit that panicked is forgotten, and its lane stands still in silence",
        file: "crates/core-delivery/src/delivery/lane_driver.rs",
        text: "Wake::Unit(Err(oneshot::Canceled)) => return Exit::UnitPanicked,",
        without: "Wake::Unit(Err(oneshot::Canceled)) => return Exit::Released,",
        suite: Kernel,
        tests: &[],
    },
    Guard {
        name: "position_compare_and_set",
        protects: "a former owner, or a lane of a restored database, moves the position (D-11)",
        file: "crates/infra-postgres/src/positions.rs",
        text: "and next_offset = $7",
        without: "and $7::bigint is not null",
        suite: Store,
        tests: &["position", "contract"],
    },
    Guard {
        name: "floor_read_again",
        protects: "an event is claimed although its claim may have been removed (D-9)",
        file: "crates/infra-postgres/src/claims.rs",
        text: "where event_id >= coalesce((select floor from bound), '00000000-0000-0000-0000-000000000000') \\\n",
        without: "\\\n",
        suite: Store,
        tests: &["floor", "contract"],
    },
    Guard {
        name: "release_own_claims_only",
        protects: "a unit takes back a claim that another one has committed (D-9)",
        file: "crates/infra-postgres/src/claims.rs",
        text: "             and xmin = pg_current_xact_id()::xid\",",
        without: "\",",
        suite: Store,
        tests: &["claim", "contract", "release", "unit"],
    },
    Guard {
        name: "swallowed_error",
        protects: "a commit that became a rollback passes for a success",
        file: "crates/infra-postgres/src/unit.rs",
        text: "if let Standing::HandedOut | Standing::Failed(_) = self.standing {",
        without: "if false {",
        suite: Store,
        tests: &["commit", "contract", "unit"],
    },
    Guard {
        name: "floor_has_stood",
        protects: "claims are removed while a unit that read the floor before is still open (D-9)",
        file: "crates/infra-postgres/src/expiry/floor.rs",
        text: "case when advanced_at <= clock_timestamp() - $1 * interval '1 millisecond' then floor",
        without: "case when $1::bigint is not null then floor",
        suite: Store,
        tests: &["floor", "expiry"],
    },
    Guard {
        name: "durable_server",
        protects: "a server that loses confirmed commits is used",
        file: "crates/infra-postgres/src/durability.rs",
        text: "if self.synchronous_commit == \"off\" {",
        without: "if self.synchronous_commit == \"never\" {",
        suite: Store,
        tests: &["durab", "synchronous_commit", "refused"],
    },
    Guard {
        name: "revoke_drains",
        protects: "a lane is given away before what runs has ended",
        file: "crates/adapters-kafka/src/rebalance.rs",
        text: "            self.drain(&assignments);\n",
        without: "",
        suite: Broker,
        tests: &["rebalance", "consume"],
    },
    Guard {
        name: "report_epoch",
        protects: "a report of an earlier assignment is committed for this one (D-5)",
        file: "crates/adapters-kafka/src/lanes.rs",
        text: "self.lanes.get_mut(&assignment.lane).filter(|lane| lane.epoch == assignment.epoch)",
        without: "self.lanes.get_mut(&assignment.lane)",
        suite: Broker,
        tests: &["lanes", "rebalance"],
    },
    Guard {
        name: "position_never_back",
        protects: "a late report commits an earlier offset (D-4)",
        file: "crates/adapters-kafka/src/lanes.rs",
        text: "lane.position = lane.position.max(Some(next));",
        without: "lane.position = Some(next);",
        suite: Broker,
        tests: &["lanes"],
    },
    Guard {
        name: "position_within_delivered",
        protects: "an offset is committed behind what was delivered (D-3)",
        file: "crates/adapters-kafka/src/lanes.rs",
        text: "if next > lane.delivered {",
        without: "if false {",
        suite: Broker,
        tests: &["lanes"],
    },
    Guard {
        name: "reset_refused",
        protects: "an offset that expired skips to the end of the topic",
        file: "crates/adapters-kafka/src/settings.rs",
        text: "(\"auto.offset.reset\", \"a partition without an offset is read from its start, or its events would be lost\"),",
        without: "",
        suite: Broker,
        tests: &["settings"],
    },
    Guard {
        name: "refusal_is_no_success",
        protects: "a 402 is taken for a charge",
        file: "crates/adapters-http/src/payment/classify.rs",
        text: "400..=499 => Err(GatewayError::Declined { reason: reason(body) }),",
        without: "400..=499 => Ok(ChargeReceipt { provider_ref: None }),",
        suite: Payment,
        tests: &[],
    },
    Guard {
        name: "credentials_halt",
        protects: "a wrong key drains the topic into the dead letters",
        file: "crates/adapters-http/src/payment/classify.rs",
        text: "401 | 403 | 407 => Err(GatewayError::Misconfigured { reason: reason(body) }),",
        without: "",
        suite: Payment,
        tests: &[],
    },
    Guard {
        name: "server_error_is_unknown",
        protects: "a 5xx is taken for \"not charged\"",
        file: "crates/adapters-http/src/payment/classify.rs",
        text: "        _ => transient(reason(body), Effect::Unknown),\n",
        without: "        _ => transient(reason(body), Effect::None),\n",
        suite: Payment,
        tests: &[],
    },
    Guard {
        name: "cut_body_is_unknown",
        protects: "half an answer is taken for a refusal",
        file: "crates/adapters-http/src/payment/classify.rs",
        text: "            return transient(reason, Effect::Unknown);\n",
        without: "            return transient(reason, Effect::None);\n",
        suite: Payment,
        tests: &[],
    },
    Guard {
        name: "no_redirect",
        protects: "a redirect turns a charge into another request",
        file: "crates/adapters-http/src/payment/gateway.rs",
        text: "redirect::Policy::none()",
        without: "redirect::Policy::limited(3)",
        suite: Payment,
        tests: &[],
    },
    Guard {
        name: "one_key",
        protects: "the provider sees another key on each try (D-10)",
        file: "crates/adapters-http/src/payment/gateway.rs",
        text: "request.header(\"Idempotency-Key\", order.id().to_string())",
        without: "request.header(\"Idempotency-Key\", core_order::EventId::generate().to_string())",
        suite: Payment,
        tests: &[],
    },
    Guard {
        name: "key_age",
        protects: "an event is charged under a key that the provider may have forgotten",
        file: "crates/app-billing/src/doubt.rs",
        text: "now.since(event.made_at()) >= self.certain",
        without: "now.since(event.made_at()) >= self.certain.saturating_mul(1_000_000)",
        suite: Rules,
        tests: &[],
    },
    Guard {
        name: "doubt_asks_first",
        protects: "an event in doubt is charged again without asking what became of the first try",
        file: "crates/app-billing/src/doubt.rs",
        text: "    in_doubt || key_may_be_gone\n",
        without: "    !in_doubt && key_may_be_gone\n",
        suite: Rules,
        tests: &[],
    },
    Guard {
        name: "refusal_in_doubt_asks",
        protects: "an event that may have been charged ends as \"not charged\"",
        file: "crates/app-billing/src/doubt.rs",
        text: "if in_doubt { Next::Ask(Question::Refused(refusal)) } else",
        without: "if in_doubt && refusal.settled { Next::Ask(Question::Refused(refusal)) } else",
        suite: Rules,
        tests: &[],
    },
    Guard {
        name: "conflict_waits",
        protects: "a 409 is taken for a charge while the earlier call may still be declined",
        file: "crates/app-billing/src/conflicts.rs",
        text: "&& now.duration_since(since) >= self.patience",
        without: "&& now >= since",
        suite: Rules,
        tests: &[],
    },
    Guard {
        name: "one_call",
        protects: "two calls of one event are in flight at once",
        file: "crates/app-billing/src/handler.rs",
        text: "self.calls.run(order.event().id(), call).await",
        without: "call.await",
        suite: Rules,
        tests: &[],
    },
    Guard {
        name: "order_reserved",
        protects: "two events of one order charge it twice",
        file: "crates/app-billing/src/ledger.rs",
        text: ".map(ReservationAnswer::ChargedByAnotherEvent)",
        without: ".map(|_| ReservationAnswer::Reserved)",
        suite: Service,
        tests: &["a_second_event_for_an_order"],
    },
];

/// Whether each of them is still there.
pub(super) fn check(root: &Path, guards: &[&Guard]) -> Result<()> {
    for Guard { name, file, text, .. } in guards {
        let path = root.join(file);
        let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        match source.matches(text).count() {
            1 => {}
            found => {
                bail!("the guard {name} stands {found} times in {file}, and not once: mend the table of the guards")
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::workspace_root;

    #[test]
    fn each_guard_is_where_the_table_has_it() {
        check(&workspace_root(), &GUARDS.iter().collect::<Vec<_>>()).unwrap();
    }

    #[test]
    fn no_name_is_given_twice() {
        let mut names: Vec<&str> = GUARDS.iter().map(|guard| guard.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), GUARDS.len());
    }
}
