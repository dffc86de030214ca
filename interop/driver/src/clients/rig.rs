//! What a client works with in one scenario: the proxy, the gateway behind it, and the server,
//! which records executions.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::scenarios::Fault;
use crate::folders::Checkout;
use crate::proxy::Proxy;
use crate::servers::target::Target;
use steadfast_test_setup::{Failure, now};

pub(super) const GATEWAY: &str = "steadfast";
pub(super) const SERVER: &str = "steadfast-interop-server-rmcp";

/// The file that ends every call at the server.
const RELEASE: &str = "release";
/// How long the calls may take to reach the server. Some clients start a program for each.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long the response to a call may take to become resumable. The scenario continues without
/// that if the gateway or the client cannot resume.
const RESUMABLE_LIMIT: Duration = Duration::from_secs(5);
/// How long a client may take to resume. One that never resumes is judged by what becomes of its
/// call.
const RESUME_LIMIT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Rig {
    runtime: Runtime,
    target: Target,
    pub(super) proxy: Proxy,
    /// Has a file for each key of a call, with a byte for each execution.
    executions: PathBuf,
}

impl Rig {
    pub(super) fn start(checkout: &Checkout, folder: &Path) -> Result<Self, Failure> {
        let executions = folder.join("executions");
        fs::create_dir_all(&executions)?;
        let server = [checkout.program(SERVER).display().to_string(), executions.display().to_string()];
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let target = Target::behind_gateway(&server, &checkout.program(GATEWAY), folder);
        let target = target.map_err(Failure::Broken)?;
        let proxy = Proxy::start()?;
        proxy.point_at(target.address());
        let mut rig = Self { runtime, target, proxy, executions };
        rig.start_all()?;
        Ok(rig)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.proxy.address())
    }

    /// Ends all calls at the server, and those that start later.
    pub(super) fn release(&self) -> Result<(), Failure> {
        File::create(self.executions.join(RELEASE))?;
        Ok(())
    }

    pub(super) fn executions(&self, key: &str) -> usize {
        fs::read(self.executions.join(key)).map_or(0, |bytes| bytes.len())
    }

    /// Waits until the server executes all these calls and their clients can resume them.
    pub(super) fn wait_until_running(&self, keys: &[String]) {
        wait_until(START_LIMIT, || keys.iter().all(|key| self.executions(key) > 0));
        wait_until(RESUMABLE_LIMIT, || keys.iter().all(|key| self.proxy.exchanges().is_resumable(key)));
    }

    pub(super) fn inject(&mut self, fault: Fault) -> Result<(), Failure> {
        match fault {
            Fault::None | Fault::NotYet => Ok(()),
            Fault::Cut { times } => {
                for _ in 0..times {
                    let seen = self.proxy.exchanges().count();
                    self.proxy.cut_all();
                    wait_until(RESUME_LIMIT, || self.proxy.exchanges().is_resumed_since(seen));
                }
                Ok(())
            }
            Fault::GatewayKilled => {
                self.target.gateway().into_iter().for_each(crate::servers::process::Process::kill);
                self.start_all()
            }
            Fault::ServerKilled | Fault::ServerRestartedBefore => {
                self.target.kill_server().map_err(|fault| Failure::Broken(format!("{fault:?}")))?;
                self.start_all()
            }
            Fault::Pause(time) => {
                self.proxy.cut_all();
                thread::sleep(time);
                Ok(())
            }
        }
    }

    /// Starts the processes that do not run.
    fn start_all(&mut self) -> Result<(), Failure> {
        let ready = self.runtime.block_on(self.target.ready());
        ready.map_err(|fault| Failure::Broken(format!("{fault:?}")))
    }
}

fn wait_until(limit: Duration, condition: impl Fn() -> bool) {
    let started = now();
    while !condition() && started.elapsed() < limit {
        thread::sleep(POLL_INTERVAL);
    }
}
