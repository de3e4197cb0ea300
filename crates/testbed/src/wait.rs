//! Waiting for a condition with a limit, in place of a sleep; it knows nothing of what is waited for.

use std::time::Duration;

use anyhow::{Result, bail};
#[cfg(feature = "clients")]
pub(crate) use sandbox::wait::wait_until_now;
use tokio::time::{sleep, timeout};

/// How often the condition is asked.
const POLL: Duration = Duration::from_millis(20);

/// Asks `condition` each 20 ms until it is true.
///
/// # Errors
/// After `limit`, with what was waited for; the limit also ends a condition that itself hangs.
pub async fn wait_until(what: &str, limit: Duration, mut condition: impl AsyncFnMut() -> bool) -> Result<()> {
    let polling = async {
        while !condition().await {
            sleep(POLL).await;
        }
    };
    if timeout(limit, polling).await.is_err() {
        bail!("waited {limit:?} in vain for {what}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_becomes_true_ends_the_wait() {
        let mut asked = 0;
        wait_until("the third question", Duration::from_secs(1), async || {
            asked += 1;
            asked == 3
        })
        .await
        .unwrap();
        assert_eq!(asked, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_ends_a_condition_that_hangs() {
        let error =
            wait_until("the moon", Duration::from_secs(5), async || std::future::pending().await).await.unwrap_err();
        assert_eq!(error.to_string(), "waited 5s in vain for the moon");
    }
}
