//! The contract of trees on a real folder, with each engine.

use std::cell::RefCell;

use crate::common;
use ropeway_block::Pool;
use ropeway_vfs::{Tree, contract};

#[test]
fn local_trees_keep_the_contract() {
    for io in common::engines() {
        let pool = Pool::new(64 * 1024, 16);
        let bases = RefCell::new(Vec::new());
        let make = || -> std::sync::Arc<dyn Tree> {
            let (base, tree) = common::tree(io, Some(&pool));
            bases.borrow_mut().push(base);
            tree
        };
        common::block_on(contract::check_tree(make, &pool));
    }
}
