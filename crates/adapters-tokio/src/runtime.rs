//! `Runtime` on tokio, with all tasks tracked so that one place can wait for them. It never aborts a task: a unit
//! of work must not be dropped half-way.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use core_delivery::event::UnixMillis;
use core_delivery::ports::{Runtime, panic_text};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Time and tasks of a tokio runtime. Clones share their tasks.
///
/// A panic in a task is logged at ERROR with the task's name and ends only that task. Whoever waits for it notices
/// by the channel that the task dropped.
#[derive(Debug, Clone)]
pub struct TokioRuntime {
    handle: Handle,
    running: Arc<watch::Sender<TaskCounts>>,
}

/// How many tasks of each name run.
type TaskCounts = BTreeMap<&'static str, usize>;

impl TokioRuntime {
    /// Runs tasks on the given runtime, which must have its timer enabled.
    pub fn new(handle: Handle) -> Self {
        Self { handle, running: Arc::new(watch::Sender::new(TaskCounts::new())) }
    }

    /// Runs tasks on the runtime of the caller.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn current() -> Self {
        Self::new(Handle::current())
    }

    /// Waits until no task runs, or for as long as `limit`. Tasks that still run then go on running. Cancel safe.
    pub async fn wait_idle(&self, limit: Duration) -> Result<(), StillRunning> {
        let mut running = self.running.subscribe();
        match tokio::time::timeout(limit, running.wait_for(TaskCounts::is_empty)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(StillRunning { tasks: self.running.borrow().iter().map(|(n, c)| (*n, *c)).collect() }),
        }
    }

    fn track(&self, name: &'static str) -> Tracked {
        self.running.send_modify(|counts| *counts.entry(name).or_default() += 1);
        Tracked { name, running: Arc::clone(&self.running) }
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> UnixMillis {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => UnixMillis::default().plus(since),
            Err(error) => UnixMillis::default().minus(error.duration()),
        }
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        // The timer belongs to this runtime, also when the caller runs on another executor.
        let _context = self.handle.enter();
        tokio::time::sleep(duration).boxed()
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        let tracked = self.track(name);
        // Dropping the join handle detaches the task; `running` is what waits for it.
        drop(self.handle.spawn(async move {
            let outcome = AssertUnwindSafe(task).catch_unwind().await;
            if let Err(panic) = outcome {
                tracing::error!(task = name, error = panic_text(panic.as_ref()), "a task panicked");
            }
            drop(tracked);
        }));
    }
}

/// Counts its task until it is dropped, whether the task ended, panicked or went down with its runtime.
struct Tracked {
    name: &'static str,
    running: Arc<watch::Sender<TaskCounts>>,
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.running.send_modify(|counts| match counts.get_mut(self.name) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(self.name)),
        });
    }
}

/// Tasks did not end within the limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct StillRunning {
    /// The names of the tasks and how many of each.
    pub tasks: Vec<(&'static str, usize)>,
}

impl fmt::Display for StillRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tasks still run:")?;
        for (index, (name, count)) in self.tasks.iter().enumerate() {
            write!(f, "{} {name} ({count})", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::oneshot;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn waiting_ends_when_the_last_task_has_ended() {
        let runtime = TokioRuntime::current();
        runtime.wait_idle(Duration::ZERO).await.expect("nothing runs yet");

        let (end, ended) = oneshot::channel::<()>();
        runtime.spawn("lane", async move { ended.await.unwrap() }.boxed());
        runtime.spawn("lane", async {}.boxed());
        let waiting = runtime.wait_idle(SOON);
        end.send(()).unwrap();
        waiting.await.expect("both tasks have ended");
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_do_not_end_are_named_and_go_on() {
        let runtime = TokioRuntime::current();
        let (end, ended) = oneshot::channel::<()>();
        runtime.spawn("lane", async move { ended.await.unwrap() }.boxed());
        runtime.spawn("relay", futures::future::pending().boxed());

        let still = runtime.wait_idle(SOON).await.expect_err("two tasks wait for ever");
        assert_eq!(still.tasks, [("lane", 1), ("relay", 1)]);
        assert_eq!(still.to_string(), "tasks still run: lane (1), relay (1)");

        end.send(()).expect("the task was not aborted");
        let still = runtime.wait_idle(SOON).await.expect_err("one task waits for ever");
        assert_eq!(still.tasks, [("relay", 1)]);
    }

    #[tokio::test]
    async fn a_panic_ends_only_its_task_and_drops_what_the_task_owned() {
        let runtime = TokioRuntime::current();
        let (owned, watched) = oneshot::channel::<()>();
        runtime.spawn(
            "lane",
            async move {
                let _owned = owned;
                panic!("a panic that this test wants");
            }
            .boxed(),
        );
        watched.await.expect_err("the panic dropped the sender");
        runtime.wait_idle(SOON).await.expect("a task that panicked does not run");
    }

    #[test]
    fn a_sleep_of_this_runtime_can_be_awaited_elsewhere() {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let runtime = TokioRuntime::new(tokio.handle().clone());
        futures::executor::block_on(runtime.sleep(Duration::from_millis(1)));
    }

    #[test]
    fn a_runtime_that_is_dropped_leaves_nothing_running() {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let runtime = TokioRuntime::new(tokio.handle().clone());
        runtime.spawn("lane", futures::future::pending().boxed());
        drop(tokio);
        assert!(runtime.running.borrow().is_empty());
    }

    #[test]
    fn now_is_the_wall_clock() {
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let runtime = TokioRuntime::new(tokio.handle().clone());
        let second_of_2026 = UnixMillis(1_767_225_601_000);
        assert!(runtime.now() > second_of_2026);
    }
}
