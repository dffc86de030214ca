//! The rules told as stories, and the promises checked on random ones.

mod bench;

mod asks;
mod calls;
mod closing;
mod connections;
mod crowd;
mod duplicates;
mod expiry;
mod handover;
mod kept_answers;
mod leases;
mod limits;
mod logs;
mod room;
mod routing;
mod state;

mod random;
