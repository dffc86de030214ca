//! What a store must do, as tests that any store can run, and a store that fails on command.
//!
//! [`store_contract!`](crate::store_contract) turns a [`Place`] into the whole suite. Its heart is
//! [`random::random_commands`]: random moves, applied to the store and to a plain [`Model`](model::Model) that is
//! nothing but sessions in a map, must have the same outcomes, the same signals and the same reads at each step.

pub mod concurrent;
pub mod faulty;
pub mod model;
pub mod moves;
pub mod random;
pub mod recorder;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub mod server;

use steadfast_session::Rules;

use crate::store::Store;

pub use faulty::{Fault, Faults, FaultyStore, Gate, Operation};

/// Where stores of one kind are opened: a file, a database, or nowhere.
pub trait Place: Sized + Send + Sync + 'static {
    type Store: Store;

    /// Whether sessions outlive the store that holds them.
    const KEEPS: bool;

    /// Whether several stores may be open here at once and see the same sessions.
    const SHARES: bool;

    /// Whether everything that is sent is done in that order. Otherwise that holds for the commands of each session, and what
    /// concerns several sessions is done at any time between its sending and its answer.
    const ONE_QUEUE: bool = true;

    /// Whether the store knows what all sessions hold, and what those of each principal do, and applies the bounds on it.
    const BOUNDS_BYTES: bool;
    const BOUNDS_BYTES_OF_PRINCIPALS: bool;

    /// Whether [`Store::no_room_for`] knows how many sessions a principal has.
    const FORESEES_PRINCIPALS: bool = true;

    /// What the store makes of the rules that it is given.
    fn rules(mut rules: Rules) -> Rules {
        if !Self::BOUNDS_BYTES {
            rules.limits.store_bytes = u64::MAX;
        }
        if !Self::BOUNDS_BYTES_OF_PRINCIPALS {
            rules.limits.principal_bytes = u64::MAX;
        }
        rules
    }

    /// Whether such a place can be had on this machine. Where it cannot, nothing is tested.
    fn is_here() -> bool {
        true
    }

    /// A place where no store has been.
    fn fresh() -> Self;

    fn open(&self, rules: Rules) -> Self::Store;

    /// A store's process ends, and everybody has noticed.
    fn close(&self, store: Self::Store) {
        drop(store);
    }

    /// Looks for what no reader can see, such as rows that belong to nothing. No store is open here any more.
    fn audit(&self, _model: &model::Model) -> Result<(), String> {
        Ok(())
    }
}

/// Makes one test of each part of the contract, for the place that is named.
#[macro_export]
macro_rules! store_contract {
    ($place:ty) => {
        #[test]
        fn random_commands_do_what_the_model_does() {
            if <$place as $crate::testing::Place>::is_here() {
                $crate::testing::random::random_commands::<$place>();
            }
        }

        #[test]
        fn every_call_is_finished_exactly_once() {
            if <$place as $crate::testing::Place>::is_here() {
                $crate::testing::concurrent::every_call_is_finished_exactly_once::<$place>();
            }
        }

        #[test]
        fn an_id_is_begun_once_at_a_time() {
            if <$place as $crate::testing::Place>::is_here() {
                $crate::testing::concurrent::an_id_is_begun_once_at_a_time::<$place>();
            }
        }

        #[test]
        fn concurrent_increments_lose_nothing() {
            if <$place as $crate::testing::Place>::is_here() {
                $crate::testing::concurrent::concurrent_increments_lose_nothing::<$place>();
            }
        }

        #[test]
        fn concurrent_messages_make_one_dense_log() {
            if <$place as $crate::testing::Place>::is_here() {
                $crate::testing::concurrent::concurrent_messages_make_one_dense_log::<$place>();
            }
        }

        #[test]
        fn an_ask_is_answered_once() {
            if <$place as $crate::testing::Place>::is_here() {
                $crate::testing::concurrent::an_ask_is_answered_once::<$place>();
            }
        }

        #[test]
        fn calls_are_given_to_nodes_that_are_there() {
            if <$place as $crate::testing::Place>::is_here() {
                $crate::testing::concurrent::calls_are_given_to_nodes_that_are_there::<$place>();
            }
        }

        #[test]
        fn a_call_that_was_begun_is_nobody_elses() {
            if <$place as $crate::testing::Place>::is_here() {
                $crate::testing::concurrent::a_call_that_was_begun_is_nobody_elses::<$place>();
            }
        }

        #[test]
        fn every_kept_answer_is_collected_once() {
            if <$place as $crate::testing::Place>::is_here() {
                $crate::testing::concurrent::every_kept_answer_is_collected_once::<$place>();
            }
        }
    };
}

/// Runs the asynchronous part of a test.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    runtime.expect("a runtime for the test").block_on(future)
}
