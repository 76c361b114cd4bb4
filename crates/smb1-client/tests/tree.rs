//! Tests the tree of an SMB 1 share against a private smbd: the contract of trees, and copies both
//! ways.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropeway_block::Pool;
use ropeway_peers::or_skip;
use ropeway_smb_client::Signing;
use ropeway_smb1_client::{Smb1Client, Smb1Options, Smb1Tree, Smb1TreeOptions};
use ropeway_vfs::{Tree, contract};

use crate::common::{connect_with, smb1_server};

async fn tree(client: &Smb1Client, base: &str) -> Arc<Smb1Tree> {
    let share = client.share("data").await.unwrap();
    Arc::new(
        Smb1Tree::open(share, base, Smb1TreeOptions::default())
            .await
            .unwrap(),
    )
}

/// Checks all rules but one, which a code page cannot keep.
async fn keeps_the_contract_of_bytes(client: &Smb1Client, folder: &Path) {
    let pool = Pool::new(1 << 16, 8);
    for (name, rule) in contract::RULES {
        if *name != "odd_names_come_back_as_they_were" {
            fs::create_dir(folder.join(name)).unwrap();
            let tree = tree(client, name).await;
            rule(&contract::Stage::new(tree, pool.clone())).await;
        }
    }
}

async fn keeps_the_contract(client: &Smb1Client, folder: &Path) {
    let pool = Pool::new(1 << 16, 8);
    let count = AtomicUsize::new(0);
    let make = || -> Arc<dyn Tree> {
        let base = format!("rule{}", count.fetch_add(1, Ordering::Relaxed));
        fs::create_dir(folder.join(&base)).unwrap();
        let runtime = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| runtime.block_on(tree(client, &base)))
    };
    contract::check_tree(make, &pool).await;
    assert_eq!(pool.available(), 8, "all blocks came back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_fulfils_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(smb1_server(folder.path()).start());
    let client = connect_with(&smbd, Smb1Options::default()).await.unwrap();
    assert!(client.is_signing().await.unwrap());
    keeps_the_contract(&client, folder.path()).await;
}

/// Everything that a connection can settle differently: old logins, bytes instead of UTF-16, one
/// small request at a time, no signatures.
#[tokio::test(flavor = "multi_thread")]
async fn a_share_fulfils_the_contract_in_the_ways_of_old_machines() {
    let ways = [
        Smb1Options {
            extended_security: false,
            signing: Signing::Offered,
            in_flight_max: 3,
            read_size: 4356,
            write_size: 4356,
            ..Smb1Options::default()
        },
        Smb1Options {
            unicode: false,
            signing: Signing::Offered,
            pipelined_reads: false,
            pipelined_writes: false,
            in_flight_max: 1,
            ..Smb1Options::default()
        },
    ];
    for way in ways {
        let folder = tempfile::tempdir().unwrap();
        // Samba's own settings refuse NTLMv2 outside of SPNEGO.
        let builder = smb1_server(folder.path()).option("raw NTLMv2 auth", "yes");
        let smbd = or_skip!(builder.start());
        let client = connect_with(&smbd, way.clone()).await.unwrap();
        let signs = way.signing == Signing::Required;
        assert_eq!(client.is_signing().await.unwrap(), signs, "{way:?}");
        match way.unicode {
            true => keeps_the_contract(&client, folder.path()).await,
            false => keeps_the_contract_of_bytes(&client, folder.path()).await,
        }
    }
}
