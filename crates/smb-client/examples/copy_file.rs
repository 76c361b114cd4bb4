//! Copies a file from a share to another name on it, many blocks at once: each is read into a block of the pool and
//! written out of it.
//!
//! ```text
//! ROPEWAY_PASSWORD=… cargo run -p ropeway-smb-client --example copy_file -- server[:port] user share source target
//! ```

use futures_util::{TryStreamExt, stream};
use ropeway_block::Pool;
use ropeway_smb_client::{Client, ClientOptions, Endpoint, Error, Login, OpenFile, Text};
use ropeway_smb_wire::create::CreateDisposition;

/// Blocks under way at once, and bytes of each.
const DEPTH: usize = 16;
const BLOCK: u64 = 1 << 20;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [server, user, share, source, target] = &args[..] else {
        return Err(Error::Misuse(
            "usage: copy_file server[:port] user share source target",
        ));
    };
    let endpoint: Endpoint = server.parse().map_err(|_| Error::Misuse("not a server's name"))?;
    let password = std::env::var("ROPEWAY_PASSWORD").unwrap_or_default();
    let login = Login::password("", user, &password);
    let client = Client::connect(&endpoint, login, ClientOptions::default()).await?;
    let share = client.share(share).await?;

    let source = share
        .open(&Text::from(source.as_str()), &OpenFile::read())
        .await?;
    let create = OpenFile::write(CreateDisposition::OverwriteIf);
    let target = share.open(&Text::from(target.as_str()), &create).await?;
    let limits = share.limits();
    let step = BLOCK.min(u64::from(limits.read_max.min(limits.write_max)));
    let pool = Pool::new(BLOCK as usize, DEPTH);
    let length = source.created().end_of_file;
    stream::iter((0..length.div_ceil(step)).map(Ok))
        .try_for_each_concurrent(DEPTH, |index| {
            let (source, target, pool) = (&source, &target, &pool);
            async move {
                let block = pool.get().await;
                let (block, outcome) = source.read_at(index * step, block, step as usize).await;
                outcome?;
                target.write_at(index * step, block.freeze()).await
            }
        })
        .await?;
    target.flush().await?;
    target.close().await?;
    println!("{length} bytes, {:?}", client.info());
    client.close().await;
    Ok(())
}
