//! The crate smb-server behind the arguments of `ropeway serve`, for `cargo xtask bench server`; built outside the
//! workspace. Its settings are its defaults, but for what must be signed or sealed.

use std::error::Error;

use smb_server::{Access, LocalFsBackend, Share, SmbServer};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(2);
    let (mut listen, mut user, mut password) = (String::new(), String::new(), String::new());
    let (mut signing, mut sealing, mut shares) = (true, false, Vec::new());
    while let Some(word) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match word.as_str() {
            "--listen" => listen = value()?,
            "--user" => user = value()?,
            "--password-file" => {
                let text = std::fs::read_to_string(value()?)?;
                password = text.lines().next().unwrap_or_default().to_owned();
            }
            "--no-announce" => {}
            "--sign" => signing = value()? == "required",
            "--encrypt" => sealing = value()? == "required",
            _ => shares.push(word),
        }
    }
    let mut builder = SmbServer::builder()
        .listen(listen.parse()?)
        .user(&user, &password)
        .require_signing(signing)
        .encrypt_data(sealing);
    let mut names = Vec::new();
    for share in shares {
        let (name, folder) = share.split_once('=').ok_or("NAME=DIR")?;
        builder = builder.share(Share::new(name, LocalFsBackend::new(folder)?).user(&user, Access::ReadWrite));
        names.push(name.to_owned());
    }
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(async move {
            let server = builder.build()?;
            let address = server.bind().await?;
            for name in names {
                println!("smb://{user}@{address}/{name}");
            }
            server.serve().await?;
            Ok(())
        })
}
