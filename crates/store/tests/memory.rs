//! The memory store keeps the contract.

use steadfast_session::Rules;
use steadfast_store::MemoryStore;
use steadfast_store::testing::Place;

struct Memory;

impl Place for Memory {
    type Store = MemoryStore;
    const KEEPS: bool = false;
    const SHARES: bool = false;

    fn fresh() -> Self {
        Self
    }

    fn open(&self, rules: Rules) -> MemoryStore {
        MemoryStore::new(rules)
    }
}

steadfast_store::store_contract!(Memory);
