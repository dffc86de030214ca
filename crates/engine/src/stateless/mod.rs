//! Requests of the stateless revision (2026-07-28): exchanges and subscriptions. They use no
//! session. An exchange that is not answered soon becomes a job in the store, so that its client
//! can resume it.

mod exchange;
mod exchange_handle;
mod promote;
mod registry;
mod replies;
mod serve;
mod subscriptions;
#[cfg(test)]
mod tests;

pub use exchange_handle::ExchangeHandle;
pub use promote::CallJob;
pub use registry::ExchangeObserver;
pub use replies::{Answer, Replies, Reply};
pub use subscriptions::{Change, ChangeFilter};

pub(crate) use exchange::Exchange;
pub(crate) use registry::Exchanges;
pub(crate) use subscriptions::{Subscription, Subscriptions};
