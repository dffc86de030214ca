//! The deployment that a run tests: gateways behind nginx, a store, replicas of a server, and a
//! proxy on each network link between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

mod process;
pub(crate) mod store;

use clap::Args;

use crate::clock::Clock;
use crate::failure::Failure;
use crate::faults::{Link, ProcessCounts, Proxy};
use crate::rng::Rng;
use process::free_address;

pub(crate) use process::Process;
pub(crate) use store::Store;

const GATEWAYS: usize = 3;
const SERVERS: usize = 2;
const NGINX: &str = include_str!("nginx.conf");
const GATEWAY: &str = include_str!("gateway.toml");

/// How to start a deployment.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) seed: u64,
    pub(crate) store: store::Kind,
    pub(crate) concurrency: Option<NonZeroUsize>,
    /// The program `steadfast`.
    pub(crate) gateway: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) client_path: ClientPath,
}

/// The network between clients and gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientPath {
    /// Proxies between clients, nginx and gateways can cause network faults.
    Proxied,
    /// No proxies. A gateway that is down refuses connections at once.
    Direct,
}

#[derive(Debug)]
pub(crate) struct Deployment {
    address: SocketAddr,
    pub(crate) process_counts: ProcessCounts,
    pub(crate) gateways: Vec<tokio::sync::Mutex<Process>>,
    pub(crate) servers: Vec<tokio::sync::Mutex<Process>>,
    pub(crate) store: tokio::sync::Mutex<Store>,
    /// While a task holds this lock, every slot of a store cluster has a master, unless the task
    /// itself has killed one.
    pub(crate) masters: tokio::sync::Mutex<()>,
    balancer: tokio::sync::Mutex<Process>,
    links: BTreeMap<Link, Proxy>,
    folder: PathBuf,
}

/// The options that all kinds of runs have.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeploymentOptions {
    /// The program `steadfast` to test
    #[arg(long)]
    gateway: PathBuf,
    /// The folder for logs and data; the run keeps it if a promise was violated
    #[arg(long)]
    folder: PathBuf,
    /// Determines the plan of faults, and what clients do
    #[arg(long)]
    pub(crate) seed: u64,
    /// The store of the gateways
    #[arg(long, value_enum, default_value = "redis")]
    store: store::Kind,
    /// Limit of concurrent calls per session; one gateway then runs all calls of a session
    #[arg(long)]
    pub(crate) concurrency: Option<NonZeroUsize>,
}

impl DeploymentOptions {
    /// Returns the config of a deployment. Removes the contents of its folder.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let folder = std::path::absolute(&self.folder)?;
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let Self { seed, store, concurrency, .. } = *self;
        let gateway = std::path::absolute(&self.gateway)?;
        Ok(Config { seed, store, concurrency, gateway, folder, client_path: ClientPath::Proxied })
    }
}

impl Deployment {
    pub(crate) async fn start(config: &Config, clock: Clock) -> Result<Self, Failure> {
        let folder = &config.folder;
        let store = Store::start(config.store, folder).await?;
        let mut links = Links { seed: config.seed, proxies: BTreeMap::new() };
        let (mut servers, mut server_addresses) = (Vec::new(), Vec::new());
        for i in 0..SERVERS {
            let mut server = server(i, folder, clock)?;
            server.start().await?;
            server_addresses.push(links.add(Link::GatewaysToServer(i), server.address())?);
            servers.push(server);
        }
        let mut gateways = Vec::new();
        let mut behind_balancer = Vec::new();
        for i in 0..GATEWAYS {
            let address = free_address()?;
            let proxy = match store.single_address() {
                Some(address) => Some(links.add(Link::GatewayToStore(i), address)?),
                None => None,
            };
            let mut gateway = gateway(config, i, address, &server_addresses, &store.url(proxy))?;
            gateway.start().await?;
            gateways.push(gateway);
            behind_balancer.push(match config.client_path {
                ClientPath::Direct => address,
                ClientPath::Proxied => links.add(Link::BalancerToGateway(i), address)?,
            });
        }
        let mut balancer = nginx(folder, &behind_balancer)?;
        balancer.start().await?;
        let address = match config.client_path {
            ClientPath::Direct => balancer.address(),
            ClientPath::Proxied => links.add(Link::ClientsToBalancer, balancer.address())?,
        };
        let process_counts = ProcessCounts { gateways: GATEWAYS, servers: SERVERS, stores: store.size() };
        Ok(Self {
            address,
            process_counts,
            gateways: gateways.into_iter().map(Into::into).collect(),
            servers: servers.into_iter().map(Into::into).collect(),
            store: store.into(),
            masters: ().into(),
            balancer: balancer.into(),
            links: links.proxies,
            folder: folder.clone(),
        })
    }

    /// The address for clients.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the proxy of a link, if it has one.
    pub(crate) fn proxy(&self, link: Link) -> Option<&Proxy> {
        self.links.get(&link)
    }

    /// Returns the proxies of the chosen links.
    pub(crate) fn proxies(&self, is_chosen: impl Fn(Link) -> bool) -> Vec<&Proxy> {
        self.links.iter().filter(|(link, _)| is_chosen(**link)).map(|(_, proxy)| proxy).collect()
    }

    /// Fails if a process has exited by itself. The nemesis restarts a process before it releases
    /// the lock of the process, so a process that the nemesis has killed is not found here.
    pub(crate) async fn check(&self) -> Result<(), Failure> {
        self.balancer.lock().await.check()?;
        self.store.lock().await.check()?;
        for process in self.gateways.iter().chain(&self.servers) {
            process.lock().await.check()?;
        }
        Ok(())
    }

    /// The files in which servers record what they execute.
    pub(crate) fn journals(&self) -> impl Iterator<Item = PathBuf> {
        (0..SERVERS).map(|i| journal(&self.folder, i))
    }
}

#[derive(Debug)]
struct Links {
    seed: u64,
    proxies: BTreeMap<Link, Proxy>,
}

impl Links {
    fn add(&mut self, link: Link, target: SocketAddr) -> Result<SocketAddr, Failure> {
        let proxy = Proxy::start(target, Rng::of(self.seed, &format!("{link:?}")))?;
        let address = proxy.address();
        self.proxies.insert(link, proxy);
        Ok(address)
    }
}

fn journal(folder: &Path, i: usize) -> PathBuf {
    folder.join(format!("server-{i}")).join("journal.jsonl")
}

fn server(i: usize, folder: &Path, clock: Clock) -> Result<Process, Failure> {
    let (name, address) = (format!("server-{i}"), free_address()?);
    let program = std::env::current_exe()?.display().to_string();
    let (listen, since) = (address.to_string(), clock.origin().to_string());
    let journal = journal(folder, i).display().to_string();
    let command =
        [&program, "server", "--listen", &listen, "--journal", &journal, "--since", &since, "--name", &name];
    Ok(Process::new(&name, command.map(str::to_owned).to_vec(), &folder.join(&name), address))
}

fn gateway(
    config: &Config,
    i: usize,
    address: SocketAddr,
    servers: &[SocketAddr],
    store: &str,
) -> Result<Process, Failure> {
    let name = format!("gateway-{i}");
    let folder = config.folder.join(&name);
    std::fs::create_dir_all(&folder)?;
    let servers: Vec<String> = servers.iter().map(|server| format!("\"http://{server}/mcp\"")).collect();
    let text = GATEWAY.replace("ADDRESS", &address.to_string());
    let calls = config.concurrency.map(|most| format!("concurrency = {most}")).unwrap_or_default();
    let text = text.replace("STORE", store).replace("SERVERS", &servers.join(", ")).replace("CALLS", &calls);
    std::fs::write(folder.join("steadfast.toml"), text)?;
    let program = config.gateway.display().to_string();
    let command = [&program, "serve", "--config", "steadfast.toml"].map(str::to_owned).to_vec();
    Ok(Process::new(&name, command, &folder, address))
}

fn nginx(folder: &Path, gateways: &[SocketAddr]) -> Result<Process, Failure> {
    let (folder, address) = (folder.join("nginx"), free_address()?);
    std::fs::create_dir_all(&folder)?;
    let list: Vec<String> = gateways.iter().map(|gateway| format!("server {gateway} max_fails=0;")).collect();
    let text = NGINX.replace("GATEWAYS", &list.join("\n        "));
    std::fs::write(folder.join("nginx.conf"), text.replace("PORT", &address.port().to_string()))?;
    let prefix = folder.display().to_string();
    let command = ["nginx", "-p", &prefix, "-c", "nginx.conf"].map(str::to_owned).to_vec();
    Ok(Process::new("nginx", command, &folder, address))
}
