//! The operators' commands as they are typed. What they do is elsewhere.

use clap::{Args, Subcommand};
use core_delivery::event::{EventId, UnixMillis};

use super::letters::Selection;
use super::table::instant;

/// What an operator can look at and set right.
#[derive(Debug, Subcommand)]
pub enum Operate {
    /// Show dead letters, which could not be handled, and send them round again.
    #[command(subcommand)]
    Dlq(Dlq),
    /// Show and set where the group goes on in each partition, in Kafka and in the database.
    #[command(subcommand)]
    Positions(Positions),
    /// Bring the memory of handled events over from another table.
    #[command(subcommand)]
    Claims(Claims),
    /// Compare the topic with ledger, claims and dead letters: is anything lost, or charged twice?
    ///
    /// Exit code 1 if something is lost, charged twice or unexpected. Counted are distinct events, and records that are none by their place. An event that is both a dead letter and
    /// charged is applied: it was replayed or delivered again, or a crash came between the letter and the offset. What
    /// the topic lost by its retention is not judged. It may run beside the service.
    Audit {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
        /// Compare with the provider's own record too, if it lists it (GET {base}/charges?after=&limit=).
        #[arg(long)]
        provider: bool,
    },
    /// Reach and use everything that the service needs, and say what to do about each finding.
    ///
    /// It changes nothing and may run beside the service. Exit code 1 if there is a finding, 3 if something could not be
    /// reached.
    Check {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Dead letters.
#[derive(Debug, Subcommand)]
pub enum Dlq {
    /// Show the dead letters, the oldest first.
    ///
    /// One row for each record that became one, however many copies of its letter there are.
    List {
        /// Which.
        #[command(flatten)]
        letters: Chosen,
        /// Show the newest N only.
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Send dead letters round again, through the first retry tier and due at once.
    ///
    /// Say which, or --all. What is done already is found to be a duplicate. One replay runs at a time.
    Replay {
        /// Which.
        #[command(flatten)]
        letters: Chosen,
        /// All dead letters.
        #[arg(long, conflicts_with_all = ["id", "class", "since", "until"])]
        all: bool,
        /// Show what would be sent, and send nothing.
        #[arg(long)]
        dry_run: bool,
        /// Also letters that are in doubt, whose money may have moved.
        #[arg(long)]
        yes: bool,
    },
}

/// Which dead letters.
#[derive(Debug, Args)]
pub struct Chosen {
    /// Those of this event. May be given several times.
    #[arg(long, value_name = "EVENT_ID")]
    id: Vec<EventId>,
    /// Those of this error class, such as declined or retries_exhausted. May be given several times.
    #[arg(long, value_name = "CLASS")]
    class: Vec<String>,
    /// Those written at this time or later: 2026-12-01T10:00:00Z, or 2h for two hours ago.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    since: Option<UnixMillis>,
    /// Those written before this time.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<UnixMillis>,
}

impl Chosen {
    /// As a selection.
    pub fn selection(self) -> Selection {
        Selection {
            ids: self.id.into_iter().collect(),
            classes: self.class.into_iter().collect(),
            since: self.since,
            until: self.until,
        }
    }
}

/// Positions.
#[derive(Debug, Subcommand)]
pub enum Positions {
    /// Show what Kafka and the database hold for each partition, and where it starts.
    Show {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Set where the group goes on in a partition, in Kafka and in the database.
    ///
    /// Stop the service first. Going back delivers events again, which are duplicates; going forward skips events, which
    /// nobody charges then.
    Set {
        /// The topic: the source or a retry tier.
        #[arg(long, value_name = "TOPIC")]
        topic: String,
        /// The partition's number.
        #[arg(long, value_name = "P")]
        partition: i32,
        /// The next offset to be read.
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        offset: i64,
    },
    /// Take Kafka's offsets over for the partitions of which the database has no position.
    ///
    /// For a group for which another program consumed before. Stop that one and import its claims (`claims import`)
    /// first.
    Import,
}

/// Claims.
#[derive(Debug, Subcommand)]
pub enum Claims {
    /// Copy the claims of an earlier table with the columns event_id, consumer_group and processed_at.
    ///
    /// It may be run again, and beside a consumer that still writes to that table. Exit code 1 if ids were left out that
    /// are no event ids.
    Import {
        /// The table, with its schema if it is not on the search path.
        #[arg(long, value_name = "NAME")]
        table: String,
        /// The group whose claims are copied. Default: KAFKA_GROUP.
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
    },
}
