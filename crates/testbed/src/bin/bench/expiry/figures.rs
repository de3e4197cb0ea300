//! The windows beside removals as a table and as JSON, and the ratios of those with to those without. No figure is good
//! or bad here.

use std::{fs, time::Duration};

use serde_json::{Value, json};

use super::Variant;
use crate::world::Measured;

/// A shorter window holds too few commits to say something; it still counts in the rates of its run.
const SHORTEST: Duration = Duration::from_secs(1);

/// Where a window lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Before,
    During,
    After,
}

/// A piece of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) phase: Phase,
    pub(super) measured: Measured,
}

/// One removal and what the consumer did around it.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) variant: Variant,
    pub(super) windows: Vec<Window>,
    /// How many claims, and how long it took.
    pub(super) removed: u64,
    pub(super) took: Duration,
}

/// The runs, in their order.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    runs: Vec<Run>,
}

impl Figures {
    /// Adds a run and prints it.
    pub(super) fn add(&mut self, run: Run) {
        println!();
        println!(
            "  {}: {} claims removed in {:.1} s; the load average of the machine is {}",
            run.variant.function(),
            run.removed,
            run.took.as_secs_f64(),
            load().unwrap_or_else(|| "not known".to_owned()),
        );
        println!("    {:<8} {:>5} {:>9}   cores: consumer, postgres, kafka, others", "", "s", "events/s");
        for Window { phase, measured } in &run.windows {
            let Measured { took, cpu, .. } = measured;
            let cores = |seconds: f64| seconds / took.as_secs_f64();
            println!(
                "    {:<8} {:>5.1} {:>9.0}   {:.2} {:.2} {:.2} {:.2}",
                phase.name(),
                took.as_secs_f64(),
                measured.per_second(),
                cores(cpu.consumer),
                cores(cpu.postgres),
                cores(cpu.kafka),
                cores(cpu.others()),
            );
        }
        println!(
            "    before {:.0}, during {:.0}, after {:.0} events/s: {:.3} with/without",
            run.rate(&[Phase::Before]),
            run.rate(&[Phase::During]),
            run.rate(&[Phase::After]),
            run.ratio(),
        );
        self.runs.push(run);
    }

    pub(crate) fn print_ratios(&self) {
        println!();
        println!(
            "  {:<24} {:>9} {:>9} {:>8} {:>8}   of each run",
            "medians of windows", "without", "with", "ratio", "of runs"
        );
        for variant in Variant::ALL {
            let Some(summary) = self.summary(variant) else { continue };
            let ratios: Vec<String> = summary.ratios.iter().map(|ratio| format!("{ratio:.3}")).collect();
            println!(
                "  {:<24} {:>9.0} {:>9.0} {:>8.3} {:>8.3}   {}",
                variant.function(),
                summary.without,
                summary.with,
                summary.with / summary.without,
                median(summary.ratios.clone()).unwrap_or_default(),
                ratios.join(", "),
            );
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let summary = |variant: Variant| {
            let Summary { without, with, ratios } = self.summary(variant)?;
            Some(json!({
                "variant": variant.function(),
                "median_events_per_second_without": without,
                "median_events_per_second_with": with,
                "ratio_of_medians": with / without,
                "ratios_of_runs": ratios,
                "median_ratio_of_runs": median(ratios.clone()),
            }))
        };
        json!({
            "runs": self.runs.iter().map(Run::to_json).collect::<Vec<_>>(),
            "variants": Variant::ALL.into_iter().filter_map(summary).collect::<Vec<_>>(),
        })
    }

    /// Of all runs of the variant.
    fn summary(&self, variant: Variant) -> Option<Summary> {
        let runs = || self.runs.iter().filter(|run| run.variant == variant);
        let rates = |with: bool| {
            let windows = runs().flat_map(|run| &run.windows);
            let wanted = windows.filter(|window| (window.phase == Phase::During) == with);
            let long = wanted.filter(|window| window.measured.took >= SHORTEST);
            median(long.map(|window| window.measured.per_second()).collect())
        };
        Some(Summary { without: rates(false)?, with: rates(true)?, ratios: runs().map(Run::ratio).collect() })
    }
}

struct Summary {
    without: f64,
    with: f64,
    ratios: Vec<f64>,
}

impl Run {
    /// Of the whole phases, windows of any length together.
    fn rate(&self, phases: &[Phase]) -> f64 {
        let windows = || self.windows.iter().filter(|window| phases.contains(&window.phase));
        let events: usize = windows().map(|window| window.measured.events).sum();
        let took: Duration = windows().map(|window| window.measured.took).sum();
        Measured { events, took, cpu: crate::cpu::Cpu::default() }.per_second()
    }

    fn ratio(&self) -> f64 {
        self.rate(&[Phase::During]) / self.rate(&[Phase::Before, Phase::After])
    }

    fn to_json(&self) -> Value {
        let window = |Window { phase, measured }: &Window| {
            json!({
                "phase": phase.name(),
                "seconds": measured.took.as_secs_f64(),
                "events_per_second": measured.per_second(),
                "cpu_seconds_of_others": measured.cpu.others(),
            })
        };
        json!({
            "variant": self.variant.function(),
            "claims_removed": self.removed,
            "seconds": self.took.as_secs_f64(),
            "ratio": self.ratio(),
            "windows": self.windows.iter().map(window).collect::<Vec<_>>(),
        })
    }
}

impl Variant {
    pub(super) const ALL: [Self; 2] = [Self::Drop, Self::Delete];

    fn function(self) -> &'static str {
        match self {
            Self::Drop => "drop_expired_partitions",
            Self::Delete => "delete_expired_claims",
        }
    }
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::During => "during",
            Self::After => "after",
        }
    }
}

/// Of an even number of values, the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (lower, upper) = (values.get(values.len().saturating_sub(1) / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*lower, *upper))
}

/// How many threads of all programs ran or waited for a core, over the last minute.
fn load() -> Option<String> {
    Some(fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Cpu;

    #[test]
    fn a_run_is_compared_with_what_was_before_and_after_it() {
        let window = |phase, events, millis| {
            let measured = Measured { events, took: Duration::from_millis(millis), cpu: Cpu::default() };
            Window { phase, measured }
        };
        let windows = vec![
            window(Phase::Before, 900, 1_000),
            window(Phase::During, 950, 1_000),
            window(Phase::During, 10, 200),
            window(Phase::After, 1_100, 1_000),
        ];
        let run = Run { variant: Variant::Drop, windows, removed: 7, took: Duration::from_secs(1) };
        assert_eq!((run.rate(&[Phase::During]), run.ratio()), (800.0, 0.8));

        let figures = Figures { runs: vec![run] };
        let summary = figures.summary(Variant::Drop).unwrap();
        assert_eq!((summary.without, summary.with, summary.ratios), (1_000.0, 950.0, vec![0.8]));
        assert!(figures.summary(Variant::Delete).is_none());
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
