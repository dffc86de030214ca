//! Everything that runs: gateways behind nginx, a store, replicas of a server, and a proxy on every way between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

mod process;
pub(crate) mod store;

use clap::Args;

use crate::clock::Clock;
use crate::failure::Failure;
use crate::plan::{Link, Parties};
use crate::proxy::Proxy;
use crate::rng::Rng;
use process::free_address;

pub(crate) use process::Process;
pub(crate) use store::Store;

const GATEWAYS: usize = 3;
const SERVERS: usize = 2;
const NGINX: &str = include_str!("nginx.conf");
const GATEWAY: &str = include_str!("gateway.toml");

/// What a world is made of.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) seed: u64,
    pub(crate) store: store::Kind,
    pub(crate) concurrency: Option<NonZeroUsize>,
    /// The program `steadfast`.
    pub(crate) gateway: PathBuf,
    /// Variables for gateways alone.
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) folder: PathBuf,
    /// The network before gateways is never in trouble, so there is no proxy: whoever is not there refuses connections at once.
    pub(crate) direct: bool,
}

#[derive(Debug)]
pub(crate) struct World {
    address: SocketAddr,
    pub(crate) parties: Parties,
    pub(crate) gateways: Vec<tokio::sync::Mutex<Process>>,
    pub(crate) servers: Vec<tokio::sync::Mutex<Process>>,
    pub(crate) store: tokio::sync::Mutex<Store>,
    /// Whoever has it can rely on the masters of the store, or takes one of them away for long.
    pub(crate) masters: tokio::sync::Mutex<()>,
    front: tokio::sync::Mutex<Process>,
    links: BTreeMap<Link, Proxy>,
    folder: PathBuf,
}

/// What every run has to be told.
#[derive(Clone, Debug, Args)]
pub(crate) struct Setting {
    /// The program `steadfast` to be tested
    #[arg(long)]
    gateway: PathBuf,
    /// Where processes run and write; the history stays there if something was found
    #[arg(long)]
    folder: PathBuf,
    /// The plan of faults, and what clients do
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long, value_enum, default_value = "redis")]
    store: store::Kind,
    /// Calls at a time that a server takes in one session: then one gateway runs them all
    #[arg(long)]
    pub(crate) concurrency: Option<NonZeroUsize>,
}

impl Setting {
    /// The recipe of a world in a folder of its own, which is empty.
    pub(crate) fn recipe(&self) -> Result<Recipe, Failure> {
        let folder = std::path::absolute(&self.folder)?;
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let Self { seed, store, concurrency, .. } = *self;
        let gateway = std::path::absolute(&self.gateway)?;
        Ok(Recipe { seed, store, concurrency, gateway, variables: Vec::new(), folder, direct: false })
    }
}

impl World {
    pub(crate) async fn start(recipe: &Recipe, clock: Clock) -> Result<Self, Failure> {
        let folder = &recipe.folder;
        let store = Store::start(recipe.store, folder).await?;
        let mut links = Links { seed: recipe.seed, proxies: BTreeMap::new() };
        let (mut servers, mut ways) = (Vec::new(), Vec::new());
        for i in 0..SERVERS {
            let mut server = server(i, folder, clock)?;
            server.start().await?;
            ways.push(links.add(Link::GatewaysToServer(i), server.address())?);
            servers.push(server);
        }
        let mut gateways = Vec::new();
        let mut behind_front = Vec::new();
        for i in 0..GATEWAYS {
            let address = free_address()?;
            let way = match store.single_address() {
                Some(address) => Some(links.add(Link::GatewayToStore(i), address)?),
                None => None,
            };
            let mut gateway = gateway(recipe, i, address, &ways, &store.url(way))?;
            gateway.start().await?;
            gateways.push(gateway);
            behind_front.push(match recipe.direct {
                true => address,
                false => links.add(Link::FrontToGateway(i), address)?,
            });
        }
        let mut front = nginx(folder, &behind_front)?;
        front.start().await?;
        let address = match recipe.direct {
            true => front.address(),
            false => links.add(Link::ClientsToFront, front.address())?,
        };
        let parties = Parties { gateways: GATEWAYS, servers: SERVERS, stores: store.size() };
        Ok(Self {
            address,
            parties,
            gateways: gateways.into_iter().map(Into::into).collect(),
            servers: servers.into_iter().map(Into::into).collect(),
            store: store.into(),
            masters: ().into(),
            front: front.into(),
            links: links.proxies,
            folder: folder.clone(),
        })
    }

    /// Where clients go.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn link(&self, link: Link) -> Option<&Proxy> {
        self.links.get(&link)
    }

    /// The proxies before somebody, which have to be closed while it is not there.
    pub(crate) fn before(&self, is_before: impl Fn(Link) -> bool) -> Vec<&Proxy> {
        self.links.iter().filter(|(link, _)| is_before(**link)).map(|(_, proxy)| proxy).collect()
    }

    /// Complains if somebody has ended whom nobody has killed. Whoever kills somebody starts them again before they let go.
    pub(crate) async fn check(&self) -> Result<(), Failure> {
        self.front.lock().await.check()?;
        self.store.lock().await.check()?;
        for process in self.gateways.iter().chain(&self.servers) {
            process.lock().await.check()?;
        }
        Ok(())
    }

    /// The files in which servers have written down what they did.
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
    let words =
        [&program, "server", "--listen", &listen, "--journal", &journal, "--since", &since, "--name", &name];
    Ok(Process::new(&name, words.map(str::to_owned).to_vec(), &folder.join(&name), address))
}

fn gateway(
    recipe: &Recipe,
    i: usize,
    address: SocketAddr,
    servers: &[SocketAddr],
    store: &str,
) -> Result<Process, Failure> {
    let name = format!("gateway-{i}");
    let folder = recipe.folder.join(&name);
    std::fs::create_dir_all(&folder)?;
    let servers: Vec<String> = servers.iter().map(|server| format!("\"http://{server}/mcp\"")).collect();
    let text = GATEWAY.replace("ADDRESS", &address.to_string());
    let calls = recipe.concurrency.map(|most| format!("concurrency = {most}")).unwrap_or_default();
    let text = text.replace("STORE", store).replace("SERVERS", &servers.join(", ")).replace("CALLS", &calls);
    std::fs::write(folder.join("steadfast.toml"), text)?;
    let program = recipe.gateway.display().to_string();
    let command = [&program, "serve", "--config", "steadfast.toml"].map(str::to_owned).to_vec();
    let process = Process::new(&name, command, &folder, address);
    Ok(recipe.variables.iter().fold(process, |process, (name, value)| process.with_variable(name, value)))
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
