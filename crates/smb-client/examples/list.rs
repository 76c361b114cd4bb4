//! Lists a directory of a share, or the shares of a server.
//!
//! ```text
//! ROPEWAY_PASSWORD=… cargo run -p ropeway-smb-client --example list -- server[:port] user [share [path]]
//! ```

use ropeway_smb_client::{Client, ClientOptions, Endpoint, Error, FileAttributes, Login, Text};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let (Some(server), Some(user)) = (args.next(), args.next()) else {
        return Err(Error::Misuse("usage: list server[:port] user [share [path]]"));
    };
    let endpoint: Endpoint = server.parse().map_err(|_| Error::Misuse("not a server's name"))?;
    let password = std::env::var("ROPEWAY_PASSWORD").unwrap_or_default();
    let login = Login::password("", &user, &password);
    let client = Client::connect(&endpoint, login, ClientOptions::default()).await?;
    match args.next() {
        None => {
            for share in client.shares().await? {
                println!("{:20} {}", share.name, share.remark);
            }
        }
        Some(share) => {
            let share = client.share(&share).await?;
            let path = args.next().unwrap_or_default().replace('/', "\\");
            let mut directory = share.list(&Text::from(path.as_str()), "*").await?;
            while let Some(records) = directory.next().await? {
                for record in records {
                    let is_directory = record.attributes.contains(FileAttributes::DIRECTORY);
                    let mark = if is_directory { "\\" } else { "" };
                    println!("{:>14} {}{mark}", record.end_of_file, record.name);
                }
            }
        }
    }
    client.close().await;
    Ok(())
}
