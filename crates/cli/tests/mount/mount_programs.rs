//! Programs that ask much of a file system, on a mounted folder and on a mounted share: git, cargo,
//! SQLite, rsync and PostgreSQL. Each checks its own data.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{self, Mounted, MountedShare, or_skip};

/// Clones, looks for changes, checks all objects, commits and packs.
const GIT: &str = "
    git init -q origin && cd origin && git config user.email a@b && git config user.name a
    for i in $(seq 60); do mkdir -p d$((i % 7)); echo $i > d$((i % 7))/f$i; done
    git add . && git commit -qm one && cd .. && git clone -q origin clone && cd clone
    test -z \"$(git status --porcelain)\"
    echo change > d1/f1 && rm d2/f2
    test \"$(git status --porcelain | wc -l)\" = 2
    git -c user.email=a@b -c user.name=a commit -qam two
    git gc -q && git fsck --strict 2>&1
    test -z \"$(git status --porcelain)\"";

/// Builds a program with a build script, runs it, and builds again with nothing to do.
const CARGO: &str = "
    cargo new -q --vcs none hello && cd hello
    echo 'fn main() { println!(\"cargo::rerun-if-changed=build.rs\"); }' > build.rs
    cargo build -q --offline && test \"$(target/debug/hello)\" = 'Hello, world!'
    cargo build --offline 2>&1 | grep -v Compiling | grep -q Finished
    echo 'fn main() { println!(\"changed\"); }' > src/main.rs
    cargo build -q --offline && test \"$(target/debug/hello)\" = changed";

/// Two processes insert at the same time, with a rollback journal and with a write-ahead log.
const SQLITE: &str = "
    insert() {
        (echo '.timeout 30000'
        for i in $(seq 20); do echo 'insert into t(b) values(hex(randomblob(500)));'; done) | sqlite3 $1
    }
    for mode in delete wal; do
        sqlite3 $mode.db \"pragma journal_mode=$mode; create table t(a integer primary key, b text);\"
        insert $mode.db & insert $mode.db && wait $!
        test \"$(sqlite3 $mode.db 'select count(*) from t; pragma integrity_check')\" = \"40
ok\"
    done";

/// A second run finds nothing to do, by times or by content.
const RSYNC: &str = "
    mkdir -p $PLACE/from/a/b && cd $PLACE/from
    for i in $(seq 60); do head -c $((i * 997)) /dev/urandom > a/b/$i; done
    ln -s a/b/7 link && cd -
    rsync -rlt $PLACE/from/ to/
    test -z \"$(rsync -rlti $PLACE/from/ to/)\"
    echo more >> $PLACE/from/a/b/7 && rm $PLACE/from/a/b/8
    rsync -rlt --inplace --delete $PLACE/from/ to/
    test -z \"$(rsync -rltci --delete $PLACE/from/ to/)\" && diff -r $PLACE/from to";

/// Makes a database cluster, fills a table, stops the server at once, and counts after the recovery.
const POSTGRES: &str = "
    mkdir pg && $BIN/initdb -N -D pg -A trust --no-instructions > $PLACE/log 2>&1 || { cat $PLACE/log; exit 1; }
    server() { $BIN/pg_ctl -D pg -s -w -l $PLACE/log \"$@\"; }
    run() { $BIN/psql -X -q -t -A -h $PLACE -d postgres -c \"$1\"; }
    server start -o \"-c unix_socket_directories=$PLACE -c listen_addresses=''\"
    run 'create table t as select g, repeat(md5(g::text), 20) as x from generate_series(1, 5000) g'
    run 'create index on t(x)'
    server stop -m immediate
    server start -o \"-c unix_socket_directories=$PLACE -c listen_addresses=''\"
    test \"$(run 'select count(distinct x) from t')\" = 5000
    server stop";

/// What can be mounted.
enum Mount {
    Folder(Mounted),
    Share(MountedShare),
}

impl Mount {
    /// Mounts a folder and a share.
    fn both(flags: &[&str]) -> Result<[Self; 2], String> {
        Ok([
            Self::Folder(Mounted::new(flags)?),
            Self::Share(MountedShare::new(flags)?),
        ])
    }

    fn place(&self) -> &Path {
        match self {
            Self::Folder(mount) => mount.place.path(),
            Self::Share(mount) => mount.served.place.path(),
        }
    }

    fn unmount(mut self) {
        match &mut self {
            Self::Folder(mount) => drop(mount.unmount()),
            Self::Share(mount) => mount.unmount().assert_code(&[0]),
        }
    }

    /// Runs a script in the mount; `before` is the command that runs the shell.
    fn run(&self, before: &[&str], script: &str) {
        let folder = self.place().join("mnt");
        let words = [before, &["bash", "-e", "-u", "-c", script]].concat();
        let mut shell = Command::new(words[0]);
        shell.args(&words[1..]).current_dir(&folder);
        shell.env("PLACE", self.place().join("beside"));
        shell.env("BIN", postgres().unwrap_or_default());
        let output = shell.output().unwrap();
        let log = fs::read_to_string(self.place().join("beside/log")).unwrap_or_default();
        assert!(output.status.success(), "{}: {output:?}\n{log}", folder.display());
    }
}

fn runs(programs: &[&str], script: &str) -> Result<(), String> {
    support::needs(false, programs)?;
    for mount in Mount::both(&[])? {
        fs::create_dir(mount.place().join("beside")).unwrap();
        mount.run(&["env"], script);
        mount.unmount();
    }
    Ok(())
}

#[test]
fn git_works() {
    or_skip!(runs(&["git", "bash"], GIT));
}

#[test]
fn cargo_builds() {
    or_skip!(runs(&["cargo", "bash"], CARGO));
}

#[test]
fn sqlite_keeps_its_data() {
    or_skip!(runs(&["sqlite3", "bash"], SQLITE));
}

#[test]
fn rsync_makes_an_equal_tree() {
    or_skip!(runs(&["rsync", "bash", "diff"], RSYNC));
}

/// Returns the folder of PostgreSQL's programs. Debian keeps them outside of PATH.
fn postgres() -> Result<PathBuf, String> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    versions
        .map(|version| version.path().join("bin"))
        .find(|folder| folder.join("initdb").is_file())
        .ok_or_else(|| "PostgreSQL is not installed".to_owned())
}

/// It does not run as root, and accepts only folders that are its own.
#[test]
fn postgresql_recovers() {
    or_skip!(postgres());
    or_skip!(support::needs(false, &["setpriv", "bash"]));
    let flags = [
        "--allow-other",
        "--uid",
        "65534",
        "--gid",
        "65534",
        "--umask",
        "077",
    ];
    for mount in or_skip!(Mount::both(&flags)) {
        fs::set_permissions(mount.place(), Permissions::from_mode(0o755)).unwrap();
        let beside = mount.place().join("beside");
        fs::create_dir(&beside).unwrap();
        std::os::unix::fs::chown(&beside, Some(65534), Some(65534)).unwrap();
        mount.run(
            &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
            POSTGRES,
        );
        mount.unmount();
    }
}
