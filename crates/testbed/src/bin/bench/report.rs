//! The figures as a table and as JSON, and the ratios between them. No figure is good or bad here.

use serde_json::{Map, Value, json};

use crate::world::Measured;

/// Ratios that say something: what of the first is left in the second.
const RATIOS: [(&str, &str, &str); 3] = [
    ("b", "a", "what the kernel and Kafka leave of the database's limit"),
    ("c", "b", "what the charges leave of the kernel"),
    ("b", "s", "what batches gain over one event at a time"),
];

/// The measurements of one run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    measured: Vec<(&'static str, &'static str, Measured)>,
}

impl Report {
    /// Adds a measurement and prints it.
    pub(crate) fn add(&mut self, key: &'static str, name: &'static str, measured: Measured) {
        if self.measured.is_empty() {
            println!();
            println!(
                "      {:<20} {:>8} {:>8} {:>9}   seconds of one core (and the consumer's part per event)",
                "", "events", "s", "events/s"
            );
        }
        let Measured { events, took, cpu } = measured;
        println!(
            "  ({key}) {name:<20} {events:>8} {:>8.1} {:>9.0}   consumer {:.1} ({:.1} us), postgres {:.1}, kafka {:.1}, \
             provider {:.1}, others {:.1}",
            took.as_secs_f64(),
            measured.per_second(),
            cpu.consumer,
            measured.consumer_micros(),
            cpu.postgres,
            cpu.kafka,
            cpu.provider,
            cpu.others(),
        );
        self.measured.push((key, name, measured));
    }

    pub(crate) fn print_ratios(&self) {
        println!();
        for (of, to, meaning) in RATIOS {
            if let Some(ratio) = self.ratio(of, to) {
                println!("  {of}/{to} {ratio:6.2}   {meaning}");
            }
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let entry = |(key, name, measured): &(&str, &str, Measured)| {
            let Measured { events, took, cpu } = measured;
            let value = json!({
                "name": name,
                "events": events,
                "seconds": took.as_secs_f64(),
                "events_per_second": measured.per_second(),
                "cpu_seconds": {
                    "consumer": cpu.consumer,
                    "postgres": cpu.postgres,
                    "kafka": cpu.kafka,
                    "provider": cpu.provider,
                    "others": cpu.others(),
                },
            });
            ((*key).to_owned(), value)
        };
        let ratios: Map<String, Value> =
            RATIOS.iter().filter_map(|(of, to, _)| Some((format!("{of}/{to}"), self.ratio(of, to)?.into()))).collect();
        json!({ "measurements": self.measured.iter().map(entry).collect::<Map<_, _>>(), "ratios": ratios })
    }

    fn ratio(&self, of: &str, to: &str) -> Option<f64> {
        let rate = |wanted: &str| {
            let found = self.measured.iter().find(|(key, _, _)| *key == wanted);
            found.map(|(_, _, measured)| measured.per_second())
        };
        Some(rate(of)? / rate(to)?)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of events are small")]
impl Measured {
    pub(crate) fn per_second(&self) -> f64 {
        self.events as f64 / self.took.as_secs_f64()
    }

    fn consumer_micros(&self) -> f64 {
        self.cpu.consumer * 1e6 / self.events as f64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cpu::Cpu;

    #[test]
    fn a_ratio_is_of_rates_and_needs_both() {
        let mut report = Report::default();
        let measured = |events, seconds| Measured { events, took: Duration::from_secs(seconds), cpu: Cpu::default() };
        report.add("a", "all", measured(300, 10));
        report.add("b", "half", measured(300, 20));
        assert_eq!(report.ratio("b", "a"), Some(0.5));
        assert_eq!(report.ratio("c", "b"), None);
        assert_eq!(report.to_json()["ratios"], serde_json::json!({ "b/a": 0.5 }));
    }
}
