//! What an error of the driver means to the caller. Decided by SQLSTATE and by the kind of the driver's error,
//! never by message text; no retry and no logging happens here.

use core_delivery::ports::{BoxError, StoreError};

/// What the caller can do about an error: the variants of [`StoreError`], without their text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorClass {
    /// Pause, back off, try again; no event moves.
    Unavailable,
    /// Run the same unit again.
    Conflict,
    /// The store refuses this data for good.
    Rejected,
    /// A stored position is not what the lane left: the lane starts anew. No error of the server is of this class.
    Moved,
    /// The commit was sent and nobody knows what became of it.
    CommitUnknown,
}

impl StoreErrorClass {
    /// A [`StoreError`] of this class without a source.
    pub(crate) fn error(self, context: impl Into<String>) -> StoreError {
        self.with(context.into(), None)
    }

    fn with(self, context: String, source: Option<BoxError>) -> StoreError {
        match self {
            Self::Unavailable => StoreError::Unavailable { context, source },
            Self::Conflict => StoreError::Conflict { context, source },
            Self::Rejected => StoreError::Rejected { context, source },
            Self::Moved => StoreError::Moved { context },
            Self::CommitUnknown => StoreError::CommitUnknown { context, source },
        }
    }
}

/// The class of a statement's error, by its SQLSTATE; `None` is an error that did not come from the server.
///
/// What is not listed is [`StoreErrorClass::Unavailable`]: a wrong "rejected" moves a payment to the dead letters, one
/// event after the other and in silence, while a wrong "unavailable" stops the intake loudly and loses nothing.
/// That covers the server's own state (08, 28, 53, 57, 58, XX), a read-only server (25006), a session that was
/// ended for idling (25P03, 25P04), and every mistake in a statement, a schema or a grant (42, 3D, 3F, 0A, 21):
/// no single event is at fault there.
///
/// 25P02 (the transaction is aborted) is one of them: an earlier statement failed and its error was swallowed, so
/// its class is lost. It may have been a timeout; neither a dead letter nor an endless rerun would be right.
pub fn classify(sqlstate: Option<&str>) -> StoreErrorClass {
    let Some(code) = sqlstate else { return StoreErrorClass::Unavailable };
    match code {
        // "Statement completion unknown" is of class 40 but says the opposite of "rolled back".
        "40003" => StoreErrorClass::Unavailable,
        // The lock was not granted in time: another unit holds it.
        "55P03" => StoreErrorClass::Conflict,
        // A value exceeds a limit of the server, such as a text too long for its index. Sent by a customer, it
        // would stop the intake for ever if it counted as an outage.
        "54000" => StoreErrorClass::Rejected,
        // `raise exception` without a code of its own, in a trigger of the application: it refuses the row.
        "P0001" => StoreErrorClass::Rejected,
        _ => match code.get(..2) {
            Some("40") => StoreErrorClass::Conflict,
            // Values the type cannot take (22), constraints (23), a view's check option (44).
            Some("22" | "23" | "44") => StoreErrorClass::Rejected,
            _ => StoreErrorClass::Unavailable,
        },
    }
}

/// The class of an error of COMMIT. Only an answer that proves the transaction was undone is definite: a conflict,
/// or a deferred constraint that refuses the data. Everything else is unknown, an orderly shutdown (57P01)
/// included: the server may end a session that has committed and only waits for its replica.
pub fn classify_commit(sqlstate: Option<&str>) -> StoreErrorClass {
    match classify(sqlstate) {
        StoreErrorClass::Unavailable | StoreErrorClass::CommitUnknown => StoreErrorClass::CommitUnknown,
        definite @ (StoreErrorClass::Conflict | StoreErrorClass::Rejected | StoreErrorClass::Moved) => definite,
    }
}

/// The class of a statement's error.
pub fn class_of(error: &sqlx::Error) -> StoreErrorClass {
    match error {
        sqlx::Error::Database(database) => classify(database.code().as_deref()),
        // The value has no form on the wire, whatever the server: it is the data.
        sqlx::Error::Encode(_) => StoreErrorClass::Rejected,
        // No connection (Io, Tls, PoolTimedOut, PoolClosed, BeginFailed, …), or rows of another shape than the code
        // expects: a schema of another version.
        _ => StoreErrorClass::Unavailable,
    }
}

/// Turns the error of a statement into the port's error. `context` says what was tried, without the values.
///
/// For the application's own statements on [`PgUnit::connection`](crate::PgUnit::connection) too.
pub fn store_error(context: &str, error: sqlx::Error) -> StoreError {
    let class = class_of(&error);
    with_source(class, context, error)
}

/// Turns the error of a COMMIT into the port's error.
pub(crate) fn commit_error(context: &str, error: sqlx::Error) -> StoreError {
    let class = match &error {
        sqlx::Error::Database(database) => classify_commit(database.code().as_deref()),
        _ => StoreErrorClass::CommitUnknown,
    };
    with_source(class, context, error)
}

fn with_source(class: StoreErrorClass, context: &str, error: sqlx::Error) -> StoreError {
    let context = match sqlstate(&error) {
        Some(code) => format!("{context} (SQLSTATE {code})"),
        None => context.to_owned(),
    };
    class.with(context, Some(source(error)))
}

/// The innermost error: sqlx's own Display repeats it, which would print everything twice.
pub(crate) fn source(error: sqlx::Error) -> BoxError {
    match error {
        sqlx::Error::Database(database) => database.into_error(),
        sqlx::Error::Io(io) => io.into(),
        sqlx::Error::Tls(tls) => tls,
        other => other.into(),
    }
}

/// The SQLSTATE, if the server answered.
pub(crate) fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(std::borrow::Cow::into_owned)
}

/// Whether a claim failed because no partition covers one of its ids. A violated CHECK has the same SQLSTATE but
/// names its constraint.
pub(crate) fn is_missing_partition(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|database| {
        database.code().as_deref() == Some("23514")
            && database.constraint().is_none()
            && database.table() == Some("processed_event")
    })
}

/// Whether a partition could not be attached because its bounds overlap another one's.
pub(crate) fn is_overlapping_partition(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|database| database.code().as_deref() == Some("42P17"))
}

#[cfg(test)]
mod tests {
    use super::StoreErrorClass::{CommitUnknown, Conflict, Rejected, Unavailable};
    use super::*;

    /// SQLSTATE, what it is, class of a statement, class of a commit.
    const TABLE: &[(&str, &str, StoreErrorClass, StoreErrorClass)] = &[
        ("08006", "connection failure", Unavailable, CommitUnknown),
        ("0A000", "feature not supported", Unavailable, CommitUnknown),
        ("21000", "cardinality violation", Unavailable, CommitUnknown),
        ("22001", "text too long", Rejected, Rejected),
        ("22003", "number out of range", Rejected, Rejected),
        ("22021", "NUL in text", Rejected, Rejected),
        ("22P05", "NUL in jsonb", Rejected, Rejected),
        ("23502", "not null", Rejected, Rejected),
        ("23505", "unique", Rejected, Rejected),
        ("23514", "check", Rejected, Rejected),
        ("25006", "read-only transaction", Unavailable, CommitUnknown),
        ("25P02", "aborted transaction", Unavailable, CommitUnknown),
        ("25P03", "idle in transaction too long", Unavailable, CommitUnknown),
        ("25P04", "transaction too long", Unavailable, CommitUnknown),
        ("28P01", "wrong password", Unavailable, CommitUnknown),
        ("3D000", "no such database", Unavailable, CommitUnknown),
        ("40001", "serialization failure", Conflict, Conflict),
        ("40003", "completion unknown", Unavailable, CommitUnknown),
        ("40P01", "deadlock", Conflict, Conflict),
        ("42501", "no privilege", Unavailable, CommitUnknown),
        ("42601", "syntax error", Unavailable, CommitUnknown),
        ("42703", "no such column", Unavailable, CommitUnknown),
        ("42P01", "no such table", Unavailable, CommitUnknown),
        ("44000", "check option of a view", Rejected, Rejected),
        ("53100", "disk full", Unavailable, CommitUnknown),
        ("53200", "out of memory", Unavailable, CommitUnknown),
        ("53300", "too many connections", Unavailable, CommitUnknown),
        ("54000", "value exceeds a limit", Rejected, Rejected),
        ("54001", "statement too complex", Unavailable, CommitUnknown),
        ("55006", "object in use", Unavailable, CommitUnknown),
        ("55P03", "lock timeout", Conflict, Conflict),
        ("57014", "statement timeout", Unavailable, CommitUnknown),
        ("57P01", "terminated", Unavailable, CommitUnknown),
        ("57P02", "crash of another backend", Unavailable, CommitUnknown),
        ("57P03", "starting up", Unavailable, CommitUnknown),
        ("58030", "io error", Unavailable, CommitUnknown),
        ("P0001", "raise exception", Rejected, Rejected),
        ("XX000", "internal error", Unavailable, CommitUnknown),
        ("XX001", "data corrupted", Unavailable, CommitUnknown),
        ("ZZ999", "never heard of", Unavailable, CommitUnknown),
        ("", "no code at all", Unavailable, CommitUnknown),
    ];

    #[test]
    fn every_sqlstate_has_the_class_the_caller_needs() {
        for &(code, what, statement, commit) in TABLE {
            assert_eq!(classify(Some(code)), statement, "{code} {what}");
            assert_eq!(classify_commit(Some(code)), commit, "{code} {what} from commit");
        }
        assert_eq!(classify(None), Unavailable);
        assert_eq!(classify_commit(None), CommitUnknown);
    }

    #[test]
    fn errors_of_the_driver_are_an_outage_except_for_values_it_cannot_send() {
        for error in [
            sqlx::Error::PoolTimedOut,
            sqlx::Error::PoolClosed,
            sqlx::Error::WorkerCrashed,
            sqlx::Error::BeginFailed,
            sqlx::Error::RowNotFound,
            sqlx::Error::Protocol("unexpected".into()),
            sqlx::Error::Tls("certificate".into()),
            sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()),
        ] {
            assert_eq!(class_of(&error), Unavailable, "{error}");
            assert!(matches!(commit_error("commit", error), StoreError::CommitUnknown { .. }));
        }
        assert_eq!(class_of(&sqlx::Error::Encode("too long".into())), Rejected);
    }

    #[test]
    fn the_text_of_an_error_says_everything_once() {
        let io = std::io::Error::other("reset by peer");
        let text = core_delivery::ports::error_chain(&store_error("claim events", sqlx::Error::Io(io)));
        assert_eq!(text, "the store is unavailable: claim events: reset by peer");
    }
}
