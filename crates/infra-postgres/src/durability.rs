//! Whether the server keeps what it confirms. Only the check at start; it changes no setting of the server.

use sqlx::PgPool;

use crate::ConnectError;

const OLDEST_VERSION: i32 = 140_000;

/// Refuses a server that could lose a confirmed commit, cannot be written to, or is too old.
///
/// The settings are read in a session of this pool, so a value set on the role or the database counts. A claim
/// that is lost while its event's offset is committed is a payment lost, or made twice.
pub async fn check_durability(pool: &PgPool) -> Result<(), ConnectError> {
    let facts: (i32, bool, String, String, String) = sqlx::query_as(
        "select current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('fsync'), \
         current_setting('synchronous_commit'), current_setting('full_page_writes')",
    )
    .fetch_one(pool)
    .await
    .map_err(|error| ConnectError::unreachable("read the durability settings", error))?;
    let (version, in_recovery, fsync, synchronous_commit, full_page_writes) = facts;
    if full_page_writes == "off" {
        tracing::warn!(
            "full_page_writes is off: a crash can tear pages unless the file system prevents it; \
             set it on, or make sure that the file system does"
        );
    }
    let facts = Facts { version, in_recovery, fsync: &fsync, synchronous_commit: &synchronous_commit };
    facts.fault().map_or(Ok(()), |fault| Err(ConnectError::Unfit(fault)))
}

struct Facts<'a> {
    version: i32,
    in_recovery: bool,
    fsync: &'a str,
    synchronous_commit: &'a str,
}

impl Facts<'_> {
    /// What is wrong, and what to do about it.
    fn fault(&self) -> Option<String> {
        if self.version < OLDEST_VERSION {
            let (major, oldest) = (self.version / 10_000, OLDEST_VERSION / 10_000);
            return Some(format!("PostgreSQL {major} is too old, {oldest} or later is needed"));
        }
        if self.in_recovery {
            return Some("the server is a standby; connect to the primary".to_owned());
        }
        if self.fsync == "off" {
            return Some("fsync is off: a crash loses confirmed commits; set fsync = on in postgresql.conf".to_owned());
        }
        if self.synchronous_commit == "off" {
            let text = "synchronous_commit is off: a crash loses confirmed commits; set it to on, or to another value \
                        than off, in postgresql.conf and wherever it is set on this database or this role";
            return Some(text.to_owned());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIT: Facts<'_> = Facts { version: 140_000, in_recovery: false, fsync: "on", synchronous_commit: "on" };

    #[test]
    fn a_server_that_could_lose_a_commit_is_refused_with_what_to_do() {
        assert_eq!(FIT.fault(), None);
        assert_eq!(Facts { synchronous_commit: "remote_apply", ..FIT }.fault(), None);
        for (facts, word) in [
            (Facts { version: 130_012, ..FIT }, "PostgreSQL 13 is too old"),
            (Facts { in_recovery: true, ..FIT }, "connect to the primary"),
            (Facts { fsync: "off", ..FIT }, "set fsync = on"),
            (Facts { synchronous_commit: "off", ..FIT }, "set it to on"),
        ] {
            let fault = facts.fault().expect("refused");
            assert!(fault.contains(word), "{fault}");
        }
    }
}
