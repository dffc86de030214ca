//! Comparisons: several servers, measured in turn on the same cores in one run.

mod library;
mod measure;
mod peer;
mod report;

use clap::Subcommand;

use crate::Error;

#[derive(Debug, Subcommand)]
pub(crate) enum Comparison {
    /// Requests/s of an in-process handler behind each library's session layer.
    Library(library::Library),
}

pub(crate) fn run(comparison: &Comparison) -> Result<(), Error> {
    match comparison {
        Comparison::Library(options) => library::run(options),
    }
}
