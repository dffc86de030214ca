//! The test suite that every store must pass, and a store that injects faults.
//!
//! [`store_contract!`](crate::store_contract) generates the suite for a [`StoreFixture`]. Its main
//! test is [`model_comparison::random_steps_match_the_model`]: random steps, applied to the store
//! and to a simple [`Model`](model::Model), must have the same outcomes, signals and reads.

pub mod concurrent;
pub mod faulty_store;
pub mod model;
pub mod model_comparison;
pub mod random_steps;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub mod server;
pub mod signal_recorder;

use steadfast_session::Rules;

use crate::store::Store;

pub use faulty_store::{Fault, Faults, FaultyStore, Gate, Operation};

/// An environment in which stores of one kind can be opened, such as a file or a database.
pub trait StoreFixture: Sized + Send + Sync + 'static {
    type Store: Store;

    /// True if sessions outlive the store that has them open.
    const PERSISTS: bool;

    /// True if several stores can be open at once and share the sessions.
    const IS_SHARED: bool;

    /// True if the store does everything in the order in which it is sent. If false, this holds
    /// only for the commands of each session: an operation on several sessions may happen at any
    /// time before its reply.
    const HAS_ONE_QUEUE: bool = true;

    /// True if the store counts the bytes of all sessions and applies the limit.
    const LIMITS_STORE_BYTES: bool;

    /// True if the store counts the bytes of each principal's sessions and applies the limit.
    const LIMITS_PRINCIPAL_BYTES: bool;

    /// True if [`Store::reached_limit`] knows how many sessions a principal has.
    const PREDICTS_PRINCIPAL_LIMIT: bool = true;

    /// Returns the rules that the store applies if it is given these.
    fn rules(mut rules: Rules) -> Rules {
        if !Self::LIMITS_STORE_BYTES {
            rules.limits.store_bytes = u64::MAX;
        }
        if !Self::LIMITS_PRINCIPAL_BYTES {
            rules.limits.principal_bytes = u64::MAX;
        }
        rules
    }

    /// Returns true if the fixture works on this machine. If not, its tests are skipped.
    fn is_available() -> bool {
        true
    }

    /// Creates a new environment without sessions.
    fn fresh() -> Self;

    fn open(&self, rules: Rules) -> Self::Store;

    /// Ends the process of a store, and makes all others notice that its nodes are dead.
    fn close(&self, store: Self::Store) {
        drop(store);
    }

    /// Checks what no reader can see, such as rows without a session. All stores are closed by
    /// then.
    fn audit(&self, _model: &model::Model) -> Result<(), String> {
        Ok(())
    }
}

/// Generates one test for each part of the contract, for the given fixture.
#[macro_export]
macro_rules! store_contract {
    ($fixture:ty) => {
        #[test]
        fn random_steps_match_the_model() {
            if <$fixture as $crate::testing::StoreFixture>::is_available() {
                $crate::testing::model_comparison::random_steps_match_the_model::<$fixture>();
            }
        }

        #[test]
        fn every_call_is_finished_exactly_once() {
            if <$fixture as $crate::testing::StoreFixture>::is_available() {
                $crate::testing::concurrent::every_call_is_finished_exactly_once::<$fixture>();
            }
        }

        #[test]
        fn an_id_is_in_use_once_at_a_time() {
            if <$fixture as $crate::testing::StoreFixture>::is_available() {
                $crate::testing::concurrent::an_id_is_in_use_once_at_a_time::<$fixture>();
            }
        }

        #[test]
        fn concurrent_increments_lose_nothing() {
            if <$fixture as $crate::testing::StoreFixture>::is_available() {
                $crate::testing::concurrent::concurrent_increments_lose_nothing::<$fixture>();
            }
        }

        #[test]
        fn concurrent_messages_make_one_dense_log() {
            if <$fixture as $crate::testing::StoreFixture>::is_available() {
                $crate::testing::concurrent::concurrent_messages_make_one_dense_log::<$fixture>();
            }
        }

        #[test]
        fn a_server_request_is_answered_once() {
            if <$fixture as $crate::testing::StoreFixture>::is_available() {
                $crate::testing::concurrent::a_server_request_is_answered_once::<$fixture>();
            }
        }

        #[test]
        fn calls_are_forwarded_only_to_nodes_that_are_alive() {
            if <$fixture as $crate::testing::StoreFixture>::is_available() {
                $crate::testing::concurrent::calls_are_forwarded_only_to_nodes_that_are_alive::<$fixture>();
            }
        }

        #[test]
        fn a_forwarded_call_that_was_started_is_not_reassigned() {
            if <$fixture as $crate::testing::StoreFixture>::is_available() {
                $crate::testing::concurrent::a_forwarded_call_that_was_started_is_not_reassigned::<$fixture>(
                );
            }
        }

        #[test]
        fn every_kept_answer_is_collected_once() {
            if <$fixture as $crate::testing::StoreFixture>::is_available() {
                $crate::testing::concurrent::every_kept_answer_is_collected_once::<$fixture>();
            }
        }
    };
}

/// Runs the asynchronous part of a test.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    runtime.expect("a runtime for the test").block_on(future)
}
