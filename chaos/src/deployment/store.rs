//! The store of a deployment: Redis, a Redis cluster or PostgreSQL, as processes that can be killed
//! and restarted with the data on their disks.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use steadfast_store::testing::server::PostgresServer;
use tokio::time::{Instant, sleep};

use super::process::{Process, free_address};
use crate::failure::Failure;

/// How long a new cluster may take until all nodes report that it is ready.
const CLUSTER_LIMIT: Duration = Duration::from_secs(30);
/// How long a failover that was requested may take. Redis has the same limit.
const FAILOVER_LIMIT: Duration = Duration::from_secs(5);
/// For how many milliseconds a master accepts no writes before it is killed.
const WRITES_PAUSE: &str = "1000";
/// How long the replica of that master may take to catch up.
const REPLICATION_LIMIT: Duration = Duration::from_millis(800);
/// After how many milliseconds without a heartbeat a cluster promotes the replica of a master.
const NODE_TIMEOUT: &str = "2000";
const MASTERS: usize = 3;
const REPLICAS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// One server that writes every commit to its disk before it answers
    Redis,
    /// Three masters with a replica each
    RedisCluster,
    /// One server that writes every commit to its disk before it answers
    Postgres,
}

#[derive(Debug)]
pub(crate) struct Store {
    kind: Kind,
    /// The Redis servers; empty for PostgreSQL.
    processes: Vec<Process>,
    postgres: Option<PostgresServer>,
}

impl Store {
    pub(crate) async fn start(kind: Kind, folder: &Path) -> Result<Self, Failure> {
        let (count, postgres) = match kind {
            Kind::Redis => (1, None),
            Kind::RedisCluster => (MASTERS + REPLICAS, None),
            Kind::Postgres => (0, Some(postgres()?)),
        };
        let mut processes = Vec::new();
        for i in 0..count {
            let mut process = redis(kind, &format!("store-{i}"), folder)?;
            process.start().await?;
            processes.push(process);
        }
        let mut store = Self { kind, processes, postgres };
        if kind == Kind::RedisCluster {
            store.make_cluster().await?;
        }
        Ok(store)
    }

    pub(crate) fn size(&self) -> usize {
        self.processes.len() + usize::from(self.postgres.is_some())
    }

    /// The address that a proxy can stand for. A cluster has none, because its nodes tell clients
    /// their own addresses.
    pub(crate) fn single_address(&self) -> Option<SocketAddr> {
        match (&self.processes[..], self.kind, &self.postgres) {
            ([only], Kind::Redis, _) => Some(only.address()),
            (_, _, Some(postgres)) => Some((Ipv4Addr::LOCALHOST, postgres.port()).into()),
            _ => None,
        }
    }

    /// The URL for a gateway that connects through this proxy, if there is one.
    pub(crate) fn url(&self, proxy: Option<SocketAddr>) -> String {
        match (self.kind, proxy) {
            (Kind::Redis, Some(proxy)) => format!("redis://{proxy}"),
            (Kind::Postgres, Some(proxy)) => format!("postgres://postgres@{proxy}/postgres"),
            _ => {
                let all: Vec<String> =
                    self.processes.iter().map(|process| process.address().to_string()).collect();
                format!("redis+cluster://{}", all.join(","))
            }
        }
    }

    pub(crate) fn kill(&mut self, which: usize) {
        match &mut self.postgres {
            Some(postgres) => postgres.kill(),
            None => self.processes[which].kill(),
        }
    }

    pub(crate) async fn start_again(&mut self, which: usize) -> Result<(), Failure> {
        match &mut self.postgres {
            Some(postgres) => Ok(postgres.launch()?),
            None => self.processes[which].start().await,
        }
    }

    /// Requests a failover, which loses no data, from the first replica from `which` on. (A master
    /// refuses the request.) Returns false if the cluster does not complete the failover in time.
    pub(crate) async fn fail_over(&self, which: usize) -> bool {
        let mut candidates = (which..which + self.size()).map(|which| which % self.size());
        let replica = candidates.find(|which| self.cli(*which, &["CLUSTER", "FAILOVER"]).starts_with("OK"));
        let Some(replica) = replica else { return false };
        self.wait_until(FAILOVER_LIMIT, || self.is_master(replica)).await
    }

    /// Kills the first master from `which` on, at a moment when its replica has all its data.
    /// Without that, the failover could lose writes that the master has acknowledged. Returns the
    /// master, or `None` if the replica does not catch up in time.
    pub(crate) async fn kill_master(&mut self, which: usize) -> Option<usize> {
        let mut candidates = (which..which + self.size()).map(|which| which % self.size());
        let master = candidates.find(|which| self.is_master(*which))?;
        self.cli(master, &["CLIENT", "PAUSE", WRITES_PAUSE, "WRITE"]);
        if !self.wait_until(REPLICATION_LIMIT, || self.is_replicated(master)).await {
            return None;
        }
        self.processes[master].kill();
        Some(master)
    }

    /// Returns true if the cluster has all its masters without the one that was killed.
    pub(crate) fn has_promoted_replica(&self, killed: usize) -> bool {
        (0..self.size()).filter(|which| *which != killed && self.is_master(*which)).count() == MASTERS
    }

    fn is_master(&self, which: usize) -> bool {
        self.cli(which, &["ROLE"]).starts_with("master")
    }

    /// Returns true if a replica has all data of this master.
    fn is_replicated(&self, master: usize) -> bool {
        let port = self.processes[master].address().port().to_string();
        let role = self.cli(master, &["ROLE"]);
        let written = role.lines().nth(1);
        (0..self.size()).map(|which| self.cli(which, &["ROLE"])).any(|role| {
            matches!(role.lines().collect::<Vec<_>>()[..], ["slave", _, of, "connected", read]
                if of == port && Some(read) == written)
        })
    }

    /// Waits until the condition holds. Returns false if it does not within `limit`.
    async fn wait_until(&self, limit: Duration, condition: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + limit;
        while !condition() {
            if Instant::now() > deadline {
                return false;
            }
            sleep(Duration::from_millis(100)).await;
        }
        true
    }

    /// Fails if a Redis server has exited by itself.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        self.processes.iter_mut().try_for_each(Process::check)
    }

    async fn make_cluster(&mut self) -> Result<(), Failure> {
        let created = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(self.processes.iter().map(|process| process.address().to_string()))
            .args(["--cluster-replicas", &(REPLICAS / MASTERS).to_string(), "--cluster-yes"])
            .stdout(Stdio::null())
            .status()?;
        let is_ready = |which| self.cli(which, &["CLUSTER", "INFO"]).contains("cluster_state:ok");
        let are_ready = || (0..self.size()).all(is_ready);
        if created.success() && self.wait_until(CLUSTER_LIMIT, are_ready).await {
            return Ok(());
        }
        let (what, why) = ("the cluster".to_owned(), "its nodes do not report that it is ready".to_owned());
        Err(Failure::NotStarted { what, why })
    }

    /// Returns the response of one Redis server to a command; an empty text if there is none.
    fn cli(&self, which: usize, command: &[&str]) -> String {
        let port = self.processes[which].address().port().to_string();
        let output =
            Command::new("redis-cli").args(["-p", &port]).args(command).stderr(Stdio::null()).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    }
}

/// Other tests turn these settings off to save time. Here PostgreSQL must keep what it has
/// acknowledged.
fn postgres() -> Result<PostgresServer, Failure> {
    let (what, why) = ("postgres".to_owned(), "it is not installed".to_owned());
    PostgresServer::start(&["fsync=on", "full_page_writes=on"]).ok_or(Failure::NotStarted { what, why })
}

fn redis(kind: Kind, name: &str, folder: &Path) -> Result<Process, Failure> {
    let address = free_address()?;
    let port = address.port().to_string();
    let mut command: Vec<String> =
        ["redis-server", "--bind", "127.0.0.1", "--port", &port, "--daemonize", "no", "--save", ""]
            .map(str::to_owned)
            .to_vec();
    command.extend(["--appendonly", "yes", "--appendfsync", "always"].map(str::to_owned));
    command.extend(["--maxmemory-policy", "noeviction"].map(str::to_owned));
    if kind == Kind::RedisCluster {
        let bus = free_address()?.port().to_string();
        let options =
            ["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT, "--cluster-port", &bus];
        command.extend(options.map(str::to_owned));
        // A server that restarts must serve its slots at once, even if other slots have no master.
        command.extend(["--cluster-require-full-coverage", "no"].map(str::to_owned));
    }
    Ok(Process::new(name, command, &folder.join(name), address))
}
