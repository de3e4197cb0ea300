//! One thread, virtual time: nothing runs and no time passes unless the model says which task is polled next, or that
//! time goes on. It knows nothing of what runs on it.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use core_delivery::event::UnixMillis;
use core_delivery::ports::{Runtime, panic_text};
use futures::future::BoxFuture;

use crate::schedule::Choices;

pub const START: UnixMillis = UnixMillis(1_800_000_000_000);

/// Every length of time in the model is a multiple of this one.
const TICK: Duration = Duration::from_millis(50);

/// Which life of which process a task belongs to. The database and the broker are number zero.
pub type Life = u32;

#[derive(Clone, Default)]
pub struct Executor(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    now: Duration,
    tasks: Vec<Task>,
    ready: Vec<usize>,
    timers: BTreeMap<(Duration, u64), Waker>,
    timers_made: u64,
}

struct Task {
    life: Life,
    name: &'static str,
    queued: bool,
    waker: Waker,
    /// Absent while it is polled, and when it has ended.
    future: Option<BoxFuture<'static, ()>>,
    ended: bool,
}

struct Woken {
    task: usize,
    executor: Executor,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.executor.lock().queue(self.task);
    }
}

impl State {
    fn queue(&mut self, index: usize) {
        let task = &mut self.tasks[index];
        if !task.ended && !task.queued {
            task.queued = true;
            self.ready.push(index);
        }
    }
}

/// What a step of a task brought.
pub struct Step {
    pub life: Life,
    pub name: &'static str,
    /// The task panicked, and is gone.
    pub panic: Option<String>,
}

impl Executor {
    pub fn now(&self) -> UnixMillis {
        START.plus(self.lock().now)
    }

    pub fn elapsed(&self) -> Duration {
        self.lock().now
    }

    pub fn spawn(&self, life: Life, name: &'static str, future: BoxFuture<'static, ()>) {
        let mut state = self.lock();
        let task = state.tasks.len();
        let waker = Waker::from(Arc::new(Woken { task, executor: self.clone() }));
        state.tasks.push(Task { life, name, queued: false, waker, future: Some(future), ended: false });
        state.queue(task);
    }

    /// What has not ended, for whoever wonders why nothing moves.
    pub fn unfinished(&self) -> Vec<&'static str> {
        self.lock().tasks.iter().filter(|task| !task.ended).map(|task| task.name).collect()
    }

    pub fn ready(&self) -> usize {
        self.lock().ready.len()
    }

    /// Polls the task at this place among those that are ready.
    pub fn poll(&self, place: usize) -> Step {
        let (index, waker, future, life, name) = {
            let mut state = self.lock();
            let index = state.ready.remove(place);
            let task = &mut state.tasks[index];
            task.queued = false;
            (index, task.waker.clone(), task.future.take(), task.life, task.name)
        };
        let mut future = future.expect("a task that is ready has not ended");
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker))));
        if matches!(polled, Ok(Poll::Pending)) {
            let mut state = self.lock();
            if !state.tasks[index].ended {
                state.tasks[index].future = Some(future);
                return Step { life, name, panic: None };
            }
        }
        {
            let mut state = self.lock();
            state.tasks[index].ended = true;
            // It may have woken itself before it ended.
            state.ready.retain(|ready| *ready != index);
        }
        drop(future);
        Step { life, name, panic: polled.err().map(|panic| panic_text(&*panic).to_owned()) }
    }

    /// Lets time pass until the next timer; false if there is none.
    pub fn pass_time(&self) -> bool {
        let mut state = self.lock();
        let Some(deadline) = state.timers.keys().next().map(|(deadline, _)| *deadline) else {
            return false;
        };
        state.now = state.now.max(deadline);
        let later = state.timers.split_off(&(deadline, u64::MAX));
        let due = std::mem::replace(&mut state.timers, later);
        drop(state);
        due.into_values().for_each(Waker::wake);
        true
    }

    /// The process is gone: nothing of it is polled again.
    pub fn kill(&self, is_dead: impl Fn(Life) -> bool) {
        let mut gone = vec![];
        let mut state = self.lock();
        for task in state.tasks.iter_mut().filter(|task| !task.ended && is_dead(task.life)) {
            task.ended = true;
            gone.push(task.future.take());
        }
        let tasks = std::mem::take(&mut state.tasks);
        state.ready.retain(|index| !tasks[*index].ended);
        state.tasks = tasks;
        drop(state);
        // What is dropped here may wake others.
        drop(gone);
    }

    pub fn sleep(&self, length: Duration) -> Sleep {
        let mut state = self.lock();
        state.timers_made += 1;
        Sleep { executor: self.clone(), timer: (state.now + length, state.timers_made) }
    }

    /// Lets whoever else is ready go first.
    pub async fn pause(&self) {
        let mut is_first = true;
        std::future::poll_fn(move |context| {
            if std::mem::take(&mut is_first) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Sleep {
    executor: Executor,
    timer: (Duration, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.executor.lock();
        if state.now >= self.timer.0 {
            return Poll::Ready(());
        }
        state.timers.insert(self.timer, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.executor.lock().timers.remove(&self.timer);
        drop(waker);
    }
}

/// The kernel's runtime in one life of a process.
pub struct LifeRuntime {
    pub life: Life,
    pub executor: Executor,
    pub choices: Choices,
}

impl Runtime for LifeRuntime {
    fn now(&self) -> UnixMillis {
        self.executor.now()
    }

    /// A length that is no multiple of the tick carries the kernel's jitter, the one thing here that no schedule
    /// decides: it is replaced by a choice, so that a run can be repeated.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let is_whole = duration.as_micros().is_multiple_of(TICK.as_micros());
        let length = if is_whole { duration } else { TICK * [2, 1, 8, 40][self.choices.pick(4)] };
        Box::pin(self.executor.sleep(length))
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.executor.spawn(self.life, name, task);
    }
}
