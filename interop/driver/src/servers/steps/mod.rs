//! The steps, in the order in which they run. Each opens its own sessions.

mod calls;
mod crashes;
mod listener;
mod server_requests;
mod streams;

use std::pin::Pin;
use std::time::Duration;

use tokio::time::timeout;

use super::outcome::{Fault, FaultKind};
use super::target::Target;

/// Longer than any step takes that succeeds.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// Resolves to a line of evidence.
type StepFuture<'a> = Pin<Box<dyn Future<Output = Result<String, Fault>> + 'a>>;

#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: &'static str,
    run: for<'a> fn(&'a mut Target) -> StepFuture<'a>,
}

/// To add a step, add a function and a row.
pub(super) const STEPS: &[Step] = &[
    Step { name: "parallel", run: |target| Box::pin(calls::parallel(target)) },
    Step { name: "duplicates", run: |target| Box::pin(calls::duplicates(target)) },
    Step { name: "cut", run: |target| Box::pin(streams::cut(target)) },
    Step { name: "server_requests", run: |target| Box::pin(server_requests::server_requests(target)) },
    Step { name: "progress_logs", run: |target| Box::pin(streams::progress_logs(target)) },
    Step { name: "cancel", run: |target| Box::pin(calls::cancel(target)) },
    Step { name: "gateway_killed", run: |target| Box::pin(crashes::gateway_killed(target)) },
    Step { name: "server_killed", run: |target| Box::pin(crashes::server_killed(target)) },
    Step { name: "crash", run: |target| Box::pin(crashes::crash(target)) },
    Step { name: "big", run: |target| Box::pin(calls::big(target)) },
];

/// Runs a step. After a failed step all processes are stopped, so that the next step starts new
/// ones.
pub(super) async fn run(step: &Step, target: &mut Target) -> Result<String, Fault> {
    let result = run_in_time(step, target).await;
    if result.is_err() {
        target.stop();
    }
    result
}

async fn run_in_time(step: &Step, target: &mut Target) -> Result<String, Fault> {
    target.ready().await?;
    let late = |_| Fault::new(FaultKind::Hangs, format!("not finished after {} s", STEP_LIMIT.as_secs()));
    timeout(STEP_LIMIT, (step.run)(target)).await.map_err(late)?
}
