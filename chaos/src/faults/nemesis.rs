//! The nemesis causes the faults of a plan. The name is the one that Jepsen, a test tool for
//! distributed systems, gives to the process that injects faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use steadfast_verify::Seen;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::network_fault::NetworkFault;
use super::plan::{Fault, FaultSequence, Link, Step};
use crate::deployment::{Deployment, Process};
use crate::failure::Failure;
use crate::recorder::Recorder;

/// How long a gateway may take to exit after SIGTERM.
const DRAIN_LIMIT: Duration = Duration::from_secs(8);
/// How long a gateway may take to connect to a cluster after it has started to listen.
const CLUSTER_CONNECT_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Nemesis {
    deployment: Arc<Deployment>,
    sequences: JoinSet<Result<(), Failure>>,
    stop: watch::Sender<bool>,
    log: Arc<Mutex<FaultLog>>,
}

#[derive(Debug, Default)]
struct FaultLog {
    /// How many faults there were, by the name of their kind.
    counts: BTreeMap<String, u64>,
    current: Vec<Fault>,
}

impl Nemesis {
    pub(crate) fn start(
        deployment: &Arc<Deployment>,
        plan: &[FaultSequence],
        seed: u64,
        recorder: &Recorder,
    ) -> Self {
        let (stop, log) = (watch::Sender::new(false), Arc::default());
        let mut sequences = JoinSet::new();
        for sequence in plan.iter().copied() {
            let runner = SequenceRunner {
                deployment: Arc::clone(deployment),
                stop: stop.subscribe(),
                log: Arc::clone(&log),
                recorder: recorder.clone(),
            };
            sequences.spawn(runner.run(sequence, seed));
        }
        Self { deployment: Arc::clone(deployment), sequences, stop, log }
    }

    /// Ends all faults and waits until every process runs again. Returns how many faults there
    /// were, by the name of their kind. Fails if a process has exited by itself.
    pub(crate) async fn stop(mut self) -> Result<BTreeMap<String, u64>, Failure> {
        self.stop.send_replace(true);
        while let Some(ended) = self.sequences.join_next().await {
            // After a panic the history is incomplete, so it cannot be checked.
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        }
        self.deployment.check().await?;
        Ok(self.counts())
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }

    /// The faults that last right now, for a progress line.
    pub(crate) fn current(&self) -> Vec<String> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.current.iter().map(|fault| format!("{fault:?}")).collect()
    }
}

/// Causes the faults of one sequence, one after the other.
struct SequenceRunner {
    deployment: Arc<Deployment>,
    stop: watch::Receiver<bool>,
    log: Arc<Mutex<FaultLog>>,
    recorder: Recorder,
}

/// Whether a fault has happened. Reports count only faults that have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Happened,
    /// The cluster has refused a failover, or has not completed it in time.
    Refused,
}

impl Effect {
    fn of(happened: bool) -> Self {
        if happened { Self::Happened } else { Self::Refused }
    }
}

impl SequenceRunner {
    async fn run(mut self, sequence: FaultSequence, seed: u64) -> Result<(), Failure> {
        let deployment = Arc::clone(&self.deployment);
        for Step { pause, duration, fault } in sequence.steps(seed, deployment.process_counts) {
            if self.wait_or_stop(pause).await {
                break;
            }
            self.begin(fault);
            let effect = self.cause(fault, duration).await?;
            self.end(fault, effect);
        }
        Ok(())
    }

    async fn cause(&mut self, fault: Fault, duration: Duration) -> Result<Effect, Failure> {
        let deployment = Arc::clone(&self.deployment);
        let to_gateway = |which| move |link| link == Link::BalancerToGateway(which);
        match fault {
            Fault::KillGateway(which) => {
                self.kill(&mut *deployment.gateways[which].lock().await, duration, to_gateway(which)).await?;
            }
            Fault::FreezeGateway(which) => {
                self.freeze(&mut *deployment.gateways[which].lock().await, duration).await;
            }
            Fault::DrainGateway(which) => {
                let mut gateway = deployment.gateways[which].lock().await;
                gateway.terminate(DRAIN_LIMIT).await;
                self.kill(&mut gateway, duration, to_gateway(which)).await?;
            }
            Fault::IsolateGateway(which) => {
                let mut gateway = deployment.gateways[which].lock().await;
                self.disturb(Link::GatewayToStore(which), NetworkFault::Stall, duration, async || {
                    gateway.kill()
                })
                .await;
                self.kill(&mut gateway, duration, to_gateway(which)).await?;
            }
            Fault::KillServer(which) => {
                let mut server = deployment.servers[which].lock().await;
                self.kill(&mut server, duration, |link| link == Link::GatewaysToServer(which)).await?;
            }
            Fault::FreezeServer(which) => {
                self.freeze(&mut *deployment.servers[which].lock().await, duration).await;
            }
            Fault::KillStore(which) => self.restart_store(which, duration).await?,
            Fault::Failover(which) => {
                return Ok(Effect::of(deployment.store.lock().await.fail_over(which).await));
            }
            Fault::LoseMaster(which) => return self.lose_master(which, duration).await,
            Fault::Network(link, fault) => self.disturb(link, fault, duration, async || {}).await,
        }
        Ok(Effect::Happened)
    }

    /// Kills a process and starts it again after `duration`. Meanwhile the proxies that
    /// `is_to_process` selects refuse connections.
    async fn kill(
        &mut self,
        process: &mut Process,
        duration: Duration,
        is_to_process: impl Fn(Link) -> bool,
    ) -> Result<(), Failure> {
        let deployment = Arc::clone(&self.deployment);
        let proxies = deployment.proxies(is_to_process);
        process.kill();
        proxies.iter().for_each(|proxy| proxy.close());
        self.wait_or_stop(duration).await;
        // A gateway that cannot reach its store at start exits, and no supervisor would restart it
        // here.
        let _masters = deployment.masters.lock().await;
        process.start().await?;
        for proxy in proxies {
            proxy.open().await?;
        }
        if deployment.process_counts.stores > 1 {
            tokio::time::sleep(CLUSTER_CONNECT_TIME).await;
        }
        Ok(())
    }

    async fn restart_store(&mut self, which: usize, duration: Duration) -> Result<(), Failure> {
        let deployment = Arc::clone(&self.deployment);
        let proxies = deployment.proxies(|link| matches!(link, Link::GatewayToStore(_)));
        let mut store = deployment.store.lock().await;
        store.kill(which);
        proxies.iter().for_each(|proxy| proxy.close());
        self.wait_or_stop(duration).await;
        store.start_again(which).await?;
        for proxy in proxies {
            proxy.open().await?;
        }
        Ok(())
    }

    /// The fault has happened if the cluster has promoted the replica of the master meanwhile.
    async fn lose_master(&mut self, which: usize, duration: Duration) -> Result<Effect, Failure> {
        let deployment = Arc::clone(&self.deployment);
        let _masters = deployment.masters.lock().await;
        let mut store = deployment.store.lock().await;
        let Some(master) = store.kill_master(which).await else { return Ok(Effect::Refused) };
        self.wait_or_stop(duration).await;
        let is_promoted = store.has_promoted_replica(master);
        store.start_again(master).await?;
        Ok(Effect::of(is_promoted))
    }

    async fn freeze(&mut self, process: &mut Process, duration: Duration) {
        process.signal(Signal::STOP);
        self.wait_or_stop(duration).await;
        process.signal(Signal::CONT);
    }

    /// Applies a network fault to a link for `duration`, and calls `before_end` before it ends the
    /// fault.
    async fn disturb(
        &mut self,
        link: Link,
        fault: NetworkFault,
        duration: Duration,
        before_end: impl AsyncFnOnce(),
    ) {
        let deployment = Arc::clone(&self.deployment);
        let Some(proxy) = deployment.proxy(link) else { return };
        proxy.set(fault);
        self.wait_or_stop(duration).await;
        before_end().await;
        proxy.set(NetworkFault::None);
    }

    /// Waits for `time`, or until the nemesis is stopped. Returns true if it is stopped.
    async fn wait_or_stop(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.stop.wait_for(|stop| *stop)).await.is_ok()
    }

    fn begin(&self, fault: Fault) {
        self.recorder.record(Seen::Fault { fault: format!("{fault:?}"), over: false });
        self.log.lock().unwrap_or_else(PoisonError::into_inner).current.push(fault);
    }

    fn end(&self, fault: Fault, effect: Effect) {
        self.recorder.record(Seen::Fault { fault: format!("{fault:?}"), over: true });
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        *log.counts.entry(fault.name()).or_default() += u64::from(effect == Effect::Happened);
        if let Some(at) = log.current.iter().position(|one| *one == fault) {
            log.current.remove(at);
        }
    }
}
