//! The store of a run: what it is, how it is reached, and how it is restarted with what is on its disk.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use steadfast_store::testing::server::PostgresServer;
use tokio::time::{Instant, sleep};

use super::process::{Process, free_address};
use crate::failure::Failure;

/// How long a cluster may take to be in order.
const CLUSTER_LIMIT: Duration = Duration::from_secs(30);
/// How long a cluster itself gives a failover that was asked for.
const FAILOVER_LIMIT: Duration = Duration::from_secs(5);
/// For how long a master takes no writes before it is killed, in milliseconds, and how long its replica has to catch up.
const WRITES_PAUSE: &str = "1000";
const COPY_LIMIT: Duration = Duration::from_millis(800);
/// How long a master of a cluster may be silent, in milliseconds, before its replica takes over.
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
    /// Those of Redis.
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

    /// Where a proxy may stand before it. There is none before a cluster, whose members tell everybody where they are.
    pub(crate) fn single_address(&self) -> Option<SocketAddr> {
        match (&self.processes[..], self.kind, &self.postgres) {
            ([only], Kind::Redis, _) => Some(only.address()),
            (_, _, Some(postgres)) => Some((Ipv4Addr::LOCALHOST, postgres.port()).into()),
            _ => None,
        }
    }

    /// What a gateway is told, which reaches it by way of this address if there is one.
    pub(crate) fn url(&self, by_way_of: Option<SocketAddr>) -> String {
        match (self.kind, by_way_of) {
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

    /// A replica takes over from its master without losing anything: the first one from `which` on. Masters refuse. Whether it
    /// has: a cluster that is busy with something else lets it be.
    pub(crate) async fn fail_over(&self, which: usize) -> bool {
        let mut from_there = (which..which + self.size()).map(|which| which % self.size());
        let replica = from_there.find(|which| self.cli(*which, &["CLUSTER", "FAILOVER"]).starts_with("OK"));
        let Some(replica) = replica else { return false };
        self.is_seen(FAILOVER_LIMIT, || self.is_master(replica)).await
    }

    /// Kills the first master from `which` on, at a moment when its replica has everything: what Redis acknowledges may not
    /// have reached a replica yet, and a failover by itself loses that. Says which it was, if there was any.
    pub(crate) async fn kill_master(&mut self, which: usize) -> Option<usize> {
        let mut from_there = (which..which + self.size()).map(|which| which % self.size());
        let master = from_there.find(|which| self.is_master(*which))?;
        self.cli(master, &["CLIENT", "PAUSE", WRITES_PAUSE, "WRITE"]);
        if !self.is_seen(COPY_LIMIT, || self.is_copied(master)).await {
            return None;
        }
        self.processes[master].kill();
        Some(master)
    }

    /// Whether there are as many masters as there should be, the one that is away not among them.
    pub(crate) fn is_taken_over(&self, away: usize) -> bool {
        (0..self.size()).filter(|which| *which != away && self.is_master(*which)).count() == MASTERS
    }

    fn is_master(&self, which: usize) -> bool {
        self.cli(which, &["ROLE"]).starts_with("master")
    }

    /// Whether a replica has all that this master has.
    fn is_copied(&self, master: usize) -> bool {
        let port = self.processes[master].address().port().to_string();
        let said = self.cli(master, &["ROLE"]);
        let written = said.lines().nth(1);
        (0..self.size()).map(|which| self.cli(which, &["ROLE"])).any(|role| {
            matches!(role.lines().collect::<Vec<_>>()[..], ["slave", _, of, "connected", read]
                if of == port && Some(read) == written)
        })
    }

    /// Waits for something, for so long at most.
    async fn is_seen(&self, limit: Duration, condition: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + limit;
        while !condition() {
            if Instant::now() > deadline {
                return false;
            }
            sleep(Duration::from_millis(100)).await;
        }
        true
    }

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
        let is_in_order = |which| self.cli(which, &["CLUSTER", "INFO"]).contains("cluster_state:ok");
        let are_in_order = || (0..self.size()).all(is_in_order);
        if created.success() && self.is_seen(CLUSTER_LIMIT, are_in_order).await {
            return Ok(());
        }
        let (what, why) = ("the cluster".to_owned(), "it does not get in order".to_owned());
        Err(Failure::NotStarted { what, why })
    }

    /// What one of its servers answers; nothing if it does not.
    fn cli(&self, which: usize, words: &[&str]) -> String {
        let port = self.processes[which].address().port().to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(words).stderr(Stdio::null()).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    }
}

/// The tests' own is quicker than safe: here it has to keep what it has acknowledged.
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
        // A server that is restarted must serve its slots at once, whatever became of the others.
        command.extend(["--cluster-require-full-coverage", "no"].map(str::to_owned));
    }
    Ok(Process::new(name, command, &folder.join(name), address))
}
