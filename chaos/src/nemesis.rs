//! Who does what the plan says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use steadfast_verify::Seen;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::plan::{Fault, Lane, Link, Step};
use crate::recorder::Recorder;
use crate::weather::Weather;
use crate::world::{Process, World};

/// How long a gateway may take to end by itself.
const DRAIN_LIMIT: Duration = Duration::from_secs(8);
/// How long a gateway that listens may take to open a cluster.
const TIME_TO_OPEN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Nemesis {
    world: Arc<World>,
    lanes: JoinSet<Result<(), Failure>>,
    stop: watch::Sender<bool>,
    done: Arc<Mutex<Done>>,
}

#[derive(Debug, Default)]
struct Done {
    counts: BTreeMap<String, u64>,
    now: Vec<Fault>,
}

impl Nemesis {
    pub(crate) fn start(world: &Arc<World>, kinds: &[Lane], seed: u64, recorder: &Recorder) -> Self {
        let (stop, done) = (watch::Sender::new(false), Arc::default());
        let mut lanes = JoinSet::new();
        for lane in kinds.iter().copied() {
            let hand = Hand {
                world: Arc::clone(world),
                stop: stop.subscribe(),
                done: Arc::clone(&done),
                recorder: recorder.clone(),
            };
            lanes.spawn(hand.follow(lane, seed));
        }
        Self { world: Arc::clone(world), lanes, stop, done }
    }

    /// Lets what is going on come to its end, and sees to it that everybody is there and the weather is good.
    pub(crate) async fn stop(mut self) -> Result<BTreeMap<String, u64>, Failure> {
        self.stop.send_replace(true);
        while let Some(ended) = self.lanes.join_next().await {
            // A lane that panics is a bug of ours, and leaves nothing to judge.
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        }
        self.world.check().await?;
        Ok(self.counts())
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }

    /// What goes on right now, in words.
    pub(crate) fn now(&self) -> Vec<String> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.now.iter().map(|fault| format!("{fault:?}")).collect()
    }
}

/// One lane of the plan.
struct Hand {
    world: Arc<World>,
    stop: watch::Receiver<bool>,
    done: Arc<Mutex<Done>>,
    recorder: Recorder,
}

impl Hand {
    async fn follow(mut self, lane: Lane, seed: u64) -> Result<(), Failure> {
        let world = Arc::clone(&self.world);
        for Step { pause, lasts, fault } in lane.steps(seed, world.parties) {
            if self.is_stopped_within(pause).await {
                break;
            }
            self.begin(fault);
            let came = self.inflict(fault, lasts).await?;
            self.end(fault, came);
        }
        Ok(())
    }

    /// Whether it came to that: a cluster may have other things to do than to fail over.
    async fn inflict(&mut self, fault: Fault, lasts: Duration) -> Result<bool, Failure> {
        let world = Arc::clone(&self.world);
        let to_gateway = |which| move |link| link == Link::FrontToGateway(which);
        match fault {
            Fault::KillGateway(which) => {
                self.kill(&mut *world.gateways[which].lock().await, lasts, to_gateway(which)).await?;
            }
            Fault::FreezeGateway(which) => {
                self.freeze(&mut *world.gateways[which].lock().await, lasts).await;
            }
            Fault::DrainGateway(which) => {
                let mut gateway = world.gateways[which].lock().await;
                gateway.terminate(DRAIN_LIMIT).await;
                self.kill(&mut gateway, lasts, to_gateway(which)).await?;
            }
            Fault::StarveGateway(which) => {
                let mut gateway = world.gateways[which].lock().await;
                self.weather(Link::GatewayToStore(which), Weather::Stall, lasts, async || gateway.kill())
                    .await;
                self.kill(&mut gateway, lasts, to_gateway(which)).await?;
            }
            Fault::KillServer(which) => {
                let mut server = world.servers[which].lock().await;
                self.kill(&mut server, lasts, |link| link == Link::GatewaysToServer(which)).await?;
            }
            Fault::FreezeServer(which) => {
                self.freeze(&mut *world.servers[which].lock().await, lasts).await;
            }
            Fault::RestartStore(which) => self.restart_store(which, lasts).await?,
            Fault::Failover(which) => return Ok(world.store.lock().await.fail_over(which).await),
            Fault::LoseMaster(which) => return self.lose_master(which, lasts).await,
            Fault::Network(link, weather) => self.weather(link, weather, lasts, async || {}).await,
        }
        Ok(true)
    }

    /// Kills somebody, and starts them again later. Whoever connects meanwhile is refused.
    async fn kill(
        &mut self,
        process: &mut Process,
        lasts: Duration,
        is_before: impl Fn(Link) -> bool,
    ) -> Result<(), Failure> {
        let world = Arc::clone(&self.world);
        let proxies = world.before(is_before);
        process.kill();
        proxies.iter().for_each(|proxy| proxy.close());
        self.is_stopped_within(lasts).await;
        // A gateway that starts without its store ends, and here is no supervisor that would try again.
        let _masters = world.masters.lock().await;
        process.start().await?;
        for proxy in proxies {
            proxy.open().await?;
        }
        if world.parties.stores > 1 {
            tokio::time::sleep(TIME_TO_OPEN).await;
        }
        Ok(())
    }

    async fn restart_store(&mut self, which: usize, lasts: Duration) -> Result<(), Failure> {
        let world = Arc::clone(&self.world);
        let proxies = world.before(|link| matches!(link, Link::GatewayToStore(_)));
        let mut store = world.store.lock().await;
        store.kill(which);
        proxies.iter().for_each(|proxy| proxy.close());
        self.is_stopped_within(lasts).await;
        store.start_again(which).await?;
        for proxy in proxies {
            proxy.open().await?;
        }
        Ok(())
    }

    /// Whether its replica has taken over meanwhile.
    async fn lose_master(&mut self, which: usize, lasts: Duration) -> Result<bool, Failure> {
        let world = Arc::clone(&self.world);
        let _masters = world.masters.lock().await;
        let mut store = world.store.lock().await;
        let Some(master) = store.kill_master(which).await else { return Ok(false) };
        self.is_stopped_within(lasts).await;
        let is_taken_over = store.is_taken_over(master);
        store.start_again(master).await?;
        Ok(is_taken_over)
    }

    async fn freeze(&mut self, process: &mut Process, lasts: Duration) {
        process.signal(Signal::STOP);
        self.is_stopped_within(lasts).await;
        process.signal(Signal::CONT);
    }

    async fn weather(
        &mut self,
        link: Link,
        weather: Weather,
        lasts: Duration,
        before_it_clears: impl AsyncFnOnce(),
    ) {
        let world = Arc::clone(&self.world);
        let Some(proxy) = world.link(link) else { return };
        proxy.set(weather);
        self.is_stopped_within(lasts).await;
        before_it_clears().await;
        proxy.set(Weather::Calm);
    }

    /// Waits for so long, or until it is time to stop.
    async fn is_stopped_within(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.stop.wait_for(|stop| *stop)).await.is_ok()
    }

    fn begin(&self, fault: Fault) {
        self.recorder.note(Seen::Fault { fault: format!("{fault:?}"), over: false });
        self.done.lock().unwrap_or_else(PoisonError::into_inner).now.push(fault);
    }

    /// One that did not come to pass is over like any other, and does not count.
    fn end(&self, fault: Fault, came: bool) {
        self.recorder.note(Seen::Fault { fault: format!("{fault:?}"), over: true });
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        *done.counts.entry(fault.name()).or_default() += u64::from(came);
        if let Some(at) = done.now.iter().position(|one| *one == fault) {
            done.now.remove(at);
        }
    }
}
