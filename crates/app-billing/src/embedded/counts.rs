//! What the service has counted, read from the metrics that everybody sees. Pure.

/// Deliveries by their verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) applied: u64,
    pub(super) duplicates: u64,
    pub(super) retried: u64,
    pub(super) dead_lettered: u64,
    pub(super) ignored: u64,
}

impl Counts {
    /// From the text of `/metrics`.
    pub(super) fn read(metrics: &str) -> Self {
        let of = |verdict: &str| {
            let label = format!("verdict=\"{verdict}\"");
            let lines =
                metrics.lines().filter(|line| line.starts_with("delivery_events_total{") && line.contains(&label));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
        };
        Self {
            applied: of("applied"),
            duplicates: of("duplicate"),
            retried: of("retried"),
            dead_lettered: of("dead_lettered"),
            ignored: of("ignored_tombstone") + of("ignored_other_type"),
        }
    }

    /// All deliveries that got a verdict, from the topic and from the retry topics.
    pub(super) fn delivered(&self) -> u64 {
        self.applied + self.duplicates + self.retried + self.dead_lettered + self.ignored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_added_up_over_their_labels() {
        let metrics = "# TYPE delivery_events_total counter\n\
            delivery_events_total{group=\"g\",verdict=\"applied\"} 7\n\
            delivery_events_total{group=\"g\",verdict=\"duplicate\"} 2\n\
            delivery_events_total{group=\"g\",verdict=\"ignored_tombstone\"} 1\n\
            delivery_events_total{group=\"g\",verdict=\"ignored_other_type\"} 3\n\
            delivery_dead_letters_total{group=\"g\",class=\"verdict\"} 9\n";
        let counts = Counts::read(metrics);
        assert_eq!(counts, Counts { applied: 7, duplicates: 2, retried: 0, dead_lettered: 0, ignored: 4 });
        assert_eq!(counts.delivered(), 13);
    }
}
