//! The plan of a run: which faults happen, when, and for how long. A seed determines the plan.
//!
//! The plan consists of several sequences. Within a sequence each fault starts after a pause that
//! follows the end of the previous fault. The sequences run concurrently, so faults of different
//! sequences overlap. One sequence has all faults of gateways, and another one all faults of
//! servers, so at most one gateway and one server are down at a time.

use std::time::Duration;

use super::network_fault::{Direction, NetworkFault};
use crate::rng::Rng;

/// A fault with the pause before it and its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) pause: Duration,
    pub(crate) duration: Duration,
    pub(crate) fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGKILL. The gateway is started again after the duration of the fault.
    KillGateway(usize),
    /// SIGSTOP. SIGCONT follows after the duration of the fault.
    FreezeGateway(usize),
    /// SIGTERM. The gateway is started again after it has exited and the duration has passed.
    DrainGateway(usize),
    /// The connection to the store stalls for the duration. Then the gateway is killed, and started
    /// again after the duration.
    IsolateGateway(usize),
    KillServer(usize),
    FreezeServer(usize),
    /// SIGKILL of the store, which is started again with the data on its disk.
    KillStore(usize),
    /// An operator requests a failover: a replica becomes master.
    Failover(usize),
    /// SIGKILL of a master, which stays down until the cluster has promoted its replica.
    LoseMaster(usize),
    Network(Link, NetworkFault),
}

/// A network link that has a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Link {
    ClientsToBalancer,
    BalancerToGateway(usize),
    GatewayToStore(usize),
    /// One proxy for all gateways, because gateways identify a replica by its address.
    GatewaysToServer(usize),
}

/// How many processes of each kind the deployment has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessCounts {
    pub(crate) gateways: usize,
    pub(crate) servers: usize,
    /// Several processes are a Redis cluster, which has no proxy in front of it.
    pub(crate) stores: usize,
}

/// A series of faults that happen one after the other. The variant's name is part of the seed of
/// its random numbers, so a renamed variant has other faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultSequence {
    Gateways,
    Servers,
    Store,
    Network,
    MoreNetwork,
    /// Only restarts and kills of gateways, with longer pauses. For soak tests.
    Restarts,
}

impl FaultSequence {
    /// The sequences of a chaos run.
    pub(crate) const CHAOS_RUN: [Self; 5] =
        [Self::Gateways, Self::Servers, Self::Store, Self::Network, Self::MoreNetwork];

    /// Returns the steps of this sequence. The iterator is endless.
    pub(crate) fn steps(self, seed: u64, counts: ProcessCounts) -> impl Iterator<Item = Step> {
        let mut rng = Rng::of(seed, &format!("{self:?}"));
        std::iter::repeat_with(move || match self {
            Self::Gateways => gateway_step(&mut rng, counts),
            Self::Servers => server_step(&mut rng, counts),
            Self::Store => store_step(&mut rng, counts),
            Self::Network | Self::MoreNetwork => network_step(&mut rng, counts),
            Self::Restarts => restart_step(&mut rng, counts),
        })
    }
}

fn gateway_step(rng: &mut Rng, counts: ProcessCounts) -> Step {
    let gateway = rng.below(counts.gateways);
    let (fault, duration) = match rng.below(8) {
        0 | 1 => (Fault::KillGateway(gateway), rng.between(200, 6_000)),
        2 => (Fault::FreezeGateway(gateway), rng.between(200, 2_000)),
        // Longer than the heartbeat timeout, so that other gateways reap this one.
        3 | 4 => (Fault::FreezeGateway(gateway), rng.between(6_000, 9_000)),
        5 | 6 if counts.stores == 1 => (Fault::IsolateGateway(gateway), rng.between(300, 1_500)),
        _ => (Fault::DrainGateway(gateway), rng.between(100, 1_000)),
    };
    step(rng.between(500, 3_000), duration, fault)
}

fn restart_step(rng: &mut Rng, counts: ProcessCounts) -> Step {
    let gateway = rng.below(counts.gateways);
    let fault = if rng.below(2) == 0 { Fault::KillGateway(gateway) } else { Fault::DrainGateway(gateway) };
    step(rng.between(3_000, 8_000), rng.between(200, 2_000), fault)
}

fn server_step(rng: &mut Rng, counts: ProcessCounts) -> Step {
    let server = rng.below(counts.servers);
    let (fault, duration) = match rng.below(3) {
        0 => (Fault::FreezeServer(server), rng.between(200, 3_000)),
        _ => (Fault::KillServer(server), rng.between(100, 4_000)),
    };
    step(rng.between(3_000, 9_000), duration, fault)
}

fn store_step(rng: &mut Rng, counts: ProcessCounts) -> Step {
    let store = rng.below(counts.stores);
    let (fault, duration) = match rng.below(3) {
        0 if counts.stores > 1 => (Fault::Failover(store), 0),
        1 if counts.stores > 1 => (Fault::LoseMaster(store), rng.between(5_000, 8_000)),
        // Shorter than the time after store the cluster promotes a replica.
        _ if counts.stores > 1 => (Fault::KillStore(store), rng.between(50, 1_000)),
        _ => (Fault::KillStore(store), rng.between(50, 2_000)),
    };
    step(rng.between(5_000, 12_000), duration, fault)
}

fn network_step(rng: &mut Rng, counts: ProcessCounts) -> Step {
    let (gateway, server) = (rng.below(counts.gateways), rng.below(counts.servers));
    let link = match rng.below(4) {
        0 => Link::ClientsToBalancer,
        1 if counts.stores == 1 => Link::GatewayToStore(gateway),
        2 => Link::GatewaysToServer(server),
        _ => Link::BalancerToGateway(gateway),
    };
    let (fault, duration) = match rng.below(7) {
        0 => (NetworkFault::Delay(Duration::from_millis(rng.between(5, 150))), rng.between(300, 3_000)),
        1 => (NetworkFault::Stall, rng.between(300, 4_000)),
        2 => (NetworkFault::Drip, rng.between(300, 2_000)),
        3 => (NetworkFault::HalfClose(Direction::ToServer), rng.between(20, 300)),
        4 => (NetworkFault::HalfClose(Direction::ToClient), rng.between(20, 300)),
        5 => (NetworkFault::Truncate, rng.between(50, 600)),
        _ => (NetworkFault::Reset, rng.between(20, 600)),
    };
    step(rng.between(200, 1_500), duration, Fault::Network(link, fault))
}

fn step(pause_ms: u64, duration_ms: u64, fault: Fault) -> Step {
    Step { pause: Duration::from_millis(pause_ms), duration: Duration::from_millis(duration_ms), fault }
}

impl Fault {
    /// The name of the kind of fault in reports.
    pub(crate) fn name(self) -> String {
        let name = match self {
            Self::KillGateway(_) => "gateway killed",
            Self::FreezeGateway(_) => "gateway frozen",
            Self::DrainGateway(_) => "gateway drained",
            Self::IsolateGateway(_) => "gateway cut off and killed",
            Self::KillServer(_) => "server killed",
            Self::FreezeServer(_) => "server frozen",
            Self::KillStore(_) => "store killed",
            Self::Failover(_) => "store failed over",
            Self::LoseMaster(_) => "store lost a master",
            Self::Network(_, fault) => return format!("network: {}", fault.name()),
        };
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ONE_STORE: ProcessCounts = ProcessCounts { gateways: 3, servers: 2, stores: 1 };
    const CLUSTER: ProcessCounts = ProcessCounts { stores: 6, ..ONE_STORE };

    fn plan(seed: u64, counts: ProcessCounts) -> Vec<Step> {
        FaultSequence::CHAOS_RUN.iter().flat_map(|sequence| sequence.steps(seed, counts).take(300)).collect()
    }

    #[test]
    fn a_seed_determines_the_plan() {
        assert_eq!(plan(1, ONE_STORE), plan(1, ONE_STORE));
        assert_ne!(plan(1, ONE_STORE), plan(2, ONE_STORE));
        let network = |sequence: FaultSequence| sequence.steps(1, ONE_STORE).take(20).collect::<Vec<_>>();
        assert_ne!(network(FaultSequence::Network), network(FaultSequence::MoreNetwork));
    }

    #[test]
    fn a_plan_has_every_fault() {
        let names = |counts| plan(1, counts).iter().map(|step| step.fault.name()).collect::<BTreeSet<_>>();
        let (process_faults, network_faults) = (7, 6);
        assert_eq!(names(ONE_STORE).len(), process_faults + network_faults, "{:?}", names(ONE_STORE));
        assert!(
            names(CLUSTER).contains("store failed over") && names(CLUSTER).contains("store lost a master")
        );
        let is_on_link_to_store = |step: &Step| {
            matches!(step.fault, Fault::Network(Link::GatewayToStore(_), _) | Fault::IsolateGateway(_))
        };
        assert!(!plan(1, CLUSTER).iter().any(is_on_link_to_store), "a cluster has no proxy");
    }
}
