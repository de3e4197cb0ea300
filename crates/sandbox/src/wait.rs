//! Waiting for a condition with a limit, in place of a sleep; it knows nothing of what is waited for.

use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep};

/// How often the condition is asked.
const POLL: Duration = Duration::from_millis(20);

/// The limit has passed and the condition was never true.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("waited {limit:?} in vain for {what}")]
pub struct TimedOut {
    /// What was waited for.
    pub what: String,
    /// How long.
    pub limit: Duration,
}

/// Asks `condition` each 20 ms until it is true.
///
/// # Errors
/// After `limit`, with what was waited for.
pub async fn wait_until_now(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Result<(), TimedOut> {
    let until = Instant::now() + limit;
    while !condition() {
        if Instant::now() > until {
            return Err(TimedOut { what: what.to_owned(), limit });
        }
        sleep(POLL).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_becomes_true_ends_the_wait() {
        let mut asked = 0;
        let waited = wait_until_now("the third question", Duration::from_secs(1), || {
            asked += 1;
            asked == 3
        });
        waited.await.unwrap();
        assert_eq!(asked, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_ends_the_wait() {
        let error = wait_until_now("the moon", Duration::from_secs(5), || false).await.unwrap_err();
        assert_eq!(error.to_string(), "waited 5s in vain for the moon");
    }
}
