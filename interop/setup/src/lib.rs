//! Prepares programs for a test run: finds tools, fetches dependencies, builds, runs commands.
//!
//! `xtask` and the interop driver, which `xtask` starts, share this library.
#![forbid(unsafe_code)]

mod command;
mod failure;
mod fetch;
mod tools;
mod workspace;

pub use command::{Ended, execute, now, run, seconds, wait};
pub use failure::Failure;
pub use fetch::{go, java, node, python, venv_python};
pub use tools::{TOOLS, Tool, missing};
pub use workspace::{FEATURES, build, clear_package_variables};
