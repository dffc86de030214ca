//! Which faults there will be: the same for the same seed.
//!
//! Faults come in lanes. In a lane one follows the other, with a pause; lanes do not wait for each other, so there is
//! trouble of several kinds at once, but never two of a kind that would leave nobody alive.

use std::time::Duration;

use crate::rng::Rng;
use crate::weather::{Way, Weather};

/// Something to be done, how long it lasts, and how long to wait before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) pause: Duration,
    pub(crate) lasts: Duration,
    pub(crate) fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9`, and a start afterwards.
    KillGateway(usize),
    /// SIGSTOP, and SIGCONT afterwards.
    FreezeGateway(usize),
    /// SIGTERM, and a start when it has ended.
    DrainGateway(usize),
    /// What it has to tell the store is held back, and then it is killed.
    StarveGateway(usize),
    KillServer(usize),
    FreezeServer(usize),
    /// `kill -9` of the store, and a start with what is on its disk.
    RestartStore(usize),
    /// Another server of the store takes over, as an operator would have it.
    Failover(usize),
    /// `kill -9` of a master, for so long that its replica takes over by itself.
    LoseMaster(usize),
    Network(Link, Weather),
}

/// Between whom there is a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Link {
    ClientsToFront,
    FrontToGateway(usize),
    GatewayToStore(usize),
    /// One for all gateways: they know a replica by its address.
    GatewaysToServer(usize),
}

/// How many of each there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parties {
    pub(crate) gateways: usize,
    pub(crate) servers: usize,
    /// Processes of the store. Several are a cluster: there is no proxy before it.
    pub(crate) stores: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Gateways,
    Servers,
    Store,
    Network,
    MoreNetwork,
    /// Gateways are replaced one after the other, or die, and nothing else happens.
    Restarts,
}

impl Lane {
    /// Those of a run in which everything breaks.
    pub(crate) const ALL: [Self; 5] =
        [Self::Gateways, Self::Servers, Self::Store, Self::Network, Self::MoreNetwork];

    /// What happens in this lane, without an end.
    pub(crate) fn steps(self, seed: u64, parties: Parties) -> impl Iterator<Item = Step> {
        let mut rng = Rng::of(seed, &format!("{self:?}"));
        std::iter::repeat_with(move || match self {
            Self::Gateways => gateway_step(&mut rng, parties),
            Self::Servers => server_step(&mut rng, parties),
            Self::Store => store_step(&mut rng, parties),
            Self::Network | Self::MoreNetwork => network_step(&mut rng, parties),
            Self::Restarts => restart_step(&mut rng, parties),
        })
    }
}

fn gateway_step(rng: &mut Rng, parties: Parties) -> Step {
    let which = rng.below(parties.gateways);
    let (fault, lasts) = match rng.below(8) {
        0 | 1 => (Fault::KillGateway(which), rng.between(200, 6_000)),
        2 => (Fault::FreezeGateway(which), rng.between(200, 2_000)),
        // For so long that the others take it for dead.
        3 | 4 => (Fault::FreezeGateway(which), rng.between(6_000, 9_000)),
        5 | 6 if parties.stores == 1 => (Fault::StarveGateway(which), rng.between(300, 1_500)),
        _ => (Fault::DrainGateway(which), rng.between(100, 1_000)),
    };
    step(rng.between(500, 3_000), lasts, fault)
}

fn restart_step(rng: &mut Rng, parties: Parties) -> Step {
    let which = rng.below(parties.gateways);
    let fault = if rng.below(2) == 0 { Fault::KillGateway(which) } else { Fault::DrainGateway(which) };
    step(rng.between(3_000, 8_000), rng.between(200, 2_000), fault)
}

fn server_step(rng: &mut Rng, parties: Parties) -> Step {
    let which = rng.below(parties.servers);
    let (fault, lasts) = match rng.below(3) {
        0 => (Fault::FreezeServer(which), rng.between(200, 3_000)),
        _ => (Fault::KillServer(which), rng.between(100, 4_000)),
    };
    step(rng.between(3_000, 9_000), lasts, fault)
}

fn store_step(rng: &mut Rng, parties: Parties) -> Step {
    let which = rng.below(parties.stores);
    let (fault, lasts) = match rng.below(3) {
        0 if parties.stores > 1 => (Fault::Failover(which), 0),
        1 if parties.stores > 1 => (Fault::LoseMaster(which), rng.between(5_000, 8_000)),
        // Back before a replica takes over.
        _ if parties.stores > 1 => (Fault::RestartStore(which), rng.between(50, 1_000)),
        _ => (Fault::RestartStore(which), rng.between(50, 2_000)),
    };
    step(rng.between(5_000, 12_000), lasts, fault)
}

fn network_step(rng: &mut Rng, parties: Parties) -> Step {
    let (gateway, server) = (rng.below(parties.gateways), rng.below(parties.servers));
    let link = match rng.below(4) {
        0 => Link::ClientsToFront,
        1 if parties.stores == 1 => Link::GatewayToStore(gateway),
        2 => Link::GatewaysToServer(server),
        _ => Link::FrontToGateway(gateway),
    };
    let (weather, lasts) = match rng.below(7) {
        0 => (Weather::Delay(Duration::from_millis(rng.between(5, 150))), rng.between(300, 3_000)),
        1 => (Weather::Stall, rng.between(300, 4_000)),
        2 => (Weather::Drip, rng.between(300, 2_000)),
        3 => (Weather::HalfClose(Way::Up), rng.between(20, 300)),
        4 => (Weather::HalfClose(Way::Down), rng.between(20, 300)),
        5 => (Weather::Truncate, rng.between(50, 600)),
        _ => (Weather::Reset, rng.between(20, 600)),
    };
    step(rng.between(200, 1_500), lasts, Fault::Network(link, weather))
}

fn step(pause: u64, lasts: u64, fault: Fault) -> Step {
    Step { pause: Duration::from_millis(pause), lasts: Duration::from_millis(lasts), fault }
}

impl Fault {
    /// For tables.
    pub(crate) fn name(self) -> String {
        let name = match self {
            Self::KillGateway(_) => "gateway killed",
            Self::FreezeGateway(_) => "gateway frozen",
            Self::DrainGateway(_) => "gateway drained",
            Self::StarveGateway(_) => "gateway cut off and killed",
            Self::KillServer(_) => "server killed",
            Self::FreezeServer(_) => "server frozen",
            Self::RestartStore(_) => "store killed",
            Self::Failover(_) => "store failed over",
            Self::LoseMaster(_) => "store lost a master",
            Self::Network(_, weather) => return format!("network: {}", weather.name()),
        };
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ONE_STORE: Parties = Parties { gateways: 3, servers: 2, stores: 1 };
    const CLUSTER: Parties = Parties { stores: 6, ..ONE_STORE };

    fn plan(seed: u64, parties: Parties) -> Vec<Step> {
        Lane::ALL.iter().flat_map(|lane| lane.steps(seed, parties).take(300)).collect()
    }

    #[test]
    fn a_seed_is_a_plan() {
        assert_eq!(plan(1, ONE_STORE), plan(1, ONE_STORE));
        assert_ne!(plan(1, ONE_STORE), plan(2, ONE_STORE));
        let network = |lane: Lane| lane.steps(1, ONE_STORE).take(20).collect::<Vec<_>>();
        assert_ne!(network(Lane::Network), network(Lane::MoreNetwork));
    }

    #[test]
    fn every_fault_comes() {
        let names = |parties| plan(1, parties).iter().map(|step| step.fault.name()).collect::<BTreeSet<_>>();
        assert_eq!(names(ONE_STORE).len(), 7 + 6, "{:?}", names(ONE_STORE));
        assert!(
            names(CLUSTER).contains("store failed over") && names(CLUSTER).contains("store lost a master")
        );
        let is_before_the_store = |step: &Step| {
            matches!(step.fault, Fault::Network(Link::GatewayToStore(_), _) | Fault::StarveGateway(_))
        };
        assert!(!plan(1, CLUSTER).iter().any(is_before_the_store), "there is no proxy before a cluster");
    }
}
