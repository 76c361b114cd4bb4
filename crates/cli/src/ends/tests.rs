//! Tests of [`resolve`](super::resolve) on real folders.

use super::*;
use std::fs;
use std::future::Future;
use std::os::unix::fs::symlink;

/// Runs a future that never waits, because its paths are local.
fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

/// Runs `resolve` to its end.
fn resolved(sources: &[PathBuf], target: &Path, options: &ResolveOptions<'_>) -> Result<Ends, Failure> {
    now(resolve(sources, target, options))
}

struct Ground(tempfile::TempDir);

impl Ground {
    /// Creates `dir/`, `dir/inner/`, `other/`, `empty/`, `file`, `file2`, `link -> dir`.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["dir/inner", "other", "empty", "holds/dir", "holds/file2"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        for name in ["file", "file2", "dir/a", "holds/file"] {
            fs::write(path(name), name).unwrap();
        }
        symlink("dir", path("link")).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        // Not `join`, which would normalise the spelling ("dir/." stays so).
        let mut path = fs::canonicalize(self.0.path()).unwrap().into_os_string();
        path.push("/");
        path.push(name);
        path.into()
    }

    fn resolve(&self, target_mode: TargetMode, sources: &[&str], target: &str) -> Result<Ends, Failure> {
        self.resolve_with(target_mode, sources, target, &|_| false)
    }

    fn resolve_with(
        &self,
        target_mode: TargetMode,
        sources: &[&str],
        target: &str,
        unfinished: &dyn Fn(&JobKey) -> bool,
    ) -> Result<Ends, Failure> {
        let sources: Vec<PathBuf> = sources.iter().map(|name| self.path(name)).collect();
        resolved(
            &sources,
            &self.path(target),
            &ResolveOptions {
                target_mode,
                writes: true,
                own_tree: false,
                engine: Engine::Auto,
                unfinished,
                servers: &Servers::none(),
            },
        )
    }

    /// Returns the target tree (relative to the test folder), and for each source its tree, path
    /// and target path.
    fn shape(&self, ends: &Ends) -> (String, Vec<[String; 3]>) {
        let base = self.path("");
        let short = |place: &Place| {
            let path = place.local().unwrap();
            path.strip_prefix(&base).unwrap_or(path).display().to_string()
        };
        let sources = ends.sources.iter().map(|end| {
            [
                short(&end.tree),
                end.path.to_string(),
                end.target_path.to_string(),
            ]
        });
        (short(&ends.target_tree), sources.collect())
    }
}

fn refused(result: Result<Ends, Failure>, expected: u8, part: &str) {
    let failure = result.unwrap_err();
    assert_eq!(failure.code, expected, "{failure:?}");
    assert!(failure.message.contains(part), "{failure:?}");
    assert!(failure.hint.is_some(), "{failure:?}");
    assert!(!failure.message.contains('\n'), "{failure:?}");
}

#[test]
fn a_source_folder_is_copied_into_or_becomes_the_target() {
    let ground = Ground::new();
    let shape = |target_mode, sources: &[&str], target: &str| {
        ground.shape(&ground.resolve(target_mode, sources, target).unwrap())
    };
    let one = |tree: &str, path: &str, target: &str| vec![[tree.into(), path.into(), target.into()]];
    assert_eq!(
        shape(TargetMode::Into, &["dir"], "other"),
        ("other".into(), one("dir", ".", "dir"))
    );
    assert_eq!(
        shape(TargetMode::Into, &["dir"], "new"),
        (String::new(), one("dir", ".", "new"))
    );
    assert_eq!(
        shape(TargetMode::Into, &["dir/"], "new/"),
        (String::new(), one("dir", ".", "new"))
    );
    assert_eq!(
        shape(TargetMode::Exact, &["dir"], "other"),
        (String::new(), one("dir", ".", "other"))
    );
    assert_eq!(
        shape(TargetMode::Mirror, &["dir"], "other"),
        (String::new(), one("dir", ".", "other"))
    );
    assert_eq!(
        shape(TargetMode::Into, &["file"], "other"),
        ("other".into(), one("", "file", "file"))
    );
    assert_eq!(
        shape(TargetMode::Into, &["file"], "file2"),
        (String::new(), one("", "file", "file2"))
    );
    assert_eq!(
        shape(TargetMode::Into, &["link"], "other"),
        ("other".into(), one("", "link", "link"))
    );
    assert_eq!(
        shape(TargetMode::Into, &["link/"], "other"),
        ("other".into(), one("dir", ".", "dir"))
    );
    assert_eq!(
        shape(TargetMode::Into, &["dir/."], "other"),
        (String::new(), one("dir", ".", "other"))
    );
    assert_eq!(
        shape(TargetMode::Into, &["dir/inner/.."], "other"),
        (String::new(), one("dir", ".", "other"))
    );
    let (tree, sources) = shape(TargetMode::Into, &["file", "dir"], "other");
    assert_eq!((tree.as_str(), sources.len()), ("other", 2));
}

#[test]
fn an_unfinished_copy_is_resumed_and_not_copied_into() {
    let ground = Ground::new();
    let exact = ground.resolve(TargetMode::Exact, &["dir"], "other").unwrap();
    let key = exact.key.clone();
    let resumed = ground
        .resolve_with(TargetMode::Into, &["dir"], "other", &|asked| *asked == key)
        .unwrap();
    assert_eq!(resumed, exact);
    let fresh = ground.resolve(TargetMode::Into, &["dir"], "other").unwrap();
    assert_ne!(fresh.key, exact.key);
    let inside = ground.resolve(TargetMode::Exact, &["dir"], "other/dir").unwrap();
    assert_eq!(
        fresh.key, inside.key,
        "the key of a copy into a folder is that of its final place"
    );
}

#[test]
fn the_key_of_a_job_does_not_depend_on_spelling() {
    let ground = Ground::new();
    let key = |source: &str, target: &str| ground.resolve(TargetMode::Into, &[source], target).unwrap().key;
    assert_eq!(key("dir", "new"), key("dir/inner/../", "other/../new"));
    assert_eq!(key("dir", "new"), key("link/", "new"));
    assert_ne!(key("dir", "new"), key("dir/inner", "new"));
}

#[test]
fn bad_combinations_of_ends_are_refused() {
    let ground = Ground::new();
    let into = |sources: &[&str], target: &str| ground.resolve(TargetMode::Into, sources, target);
    refused(into(&["none"], "other"), code::SOURCE, "No such file");
    refused(into(&["file/x"], "other"), code::SOURCE, "Not a directory");
    refused(into(&["dir"], "dir/inner"), code::USAGE, "inside the source");
    refused(into(&["dir"], "dir/new"), code::USAGE, "inside the source");
    refused(into(&["dir"], "link/new"), code::USAGE, "inside the source");
    refused(into(&["dir"], "dir"), code::USAGE, "inside the source");
    refused(
        ground.resolve(TargetMode::Exact, &["dir"], "dir"),
        code::USAGE,
        "the same",
    );
    refused(into(&["file"], "file"), code::USAGE, "the same");
    refused(into(&["file"], ""), code::USAGE, "the same");
    refused(into(&["dir"], "file"), code::USAGE, "a folder is needed");
    refused(into(&["dir"], "file/new"), code::USAGE, "not a folder");
    refused(into(&["file", "file2"], "dir/a"), code::USAGE, "several sources");
    refused(into(&["file", "file2"], "none"), code::USAGE, "several sources");
    refused(
        into(&["dir/a", "other/../dir/a"], "other"),
        code::USAGE,
        "would both become",
    );
    refused(into(&["dir"], "none/new"), code::TARGET, "there is no folder");
    refused(into(&["file"], "none/"), code::TARGET, "there is no folder");
    refused(into(&["file2"], "holds"), code::USAGE, "already");
    refused(
        ground.resolve(TargetMode::Exact, &["file"], "other"),
        code::USAGE,
        "is a folder",
    );
    refused(
        ground.resolve(TargetMode::Mirror, &["file"], "new"),
        code::USAGE,
        "not a folder",
    );
    refused(
        ground.resolve(TargetMode::Mirror, &["dir/inner"], "dir"),
        code::USAGE,
        "inside the target",
    );
}

#[test]
fn malformed_urls_and_empty_paths_are_refused() {
    let ground = Ground::new();
    let servers = Servers::none();
    let options = ResolveOptions {
        target_mode: TargetMode::Into,
        writes: true,
        own_tree: false,
        engine: Engine::Auto,
        unfinished: &|_| false,
        servers: &servers,
    };
    refused(
        resolved(&["smb://host/".into()], &ground.path("new"), &options),
        code::USAGE,
        "no share",
    );
    refused(
        resolved(&["none".into()], Path::new("smb://a:b@host/share"), &options),
        code::USAGE,
        "no password",
    );
    refused(
        resolved(&["".into()], &ground.path("new"), &options),
        code::USAGE,
        "empty",
    );
}

#[test]
fn a_hard_link_to_the_target_is_the_same_file() {
    let ground = Ground::new();
    fs::hard_link(ground.path("file"), ground.path("alias")).unwrap();
    refused(
        ground.resolve(TargetMode::Into, &["file"], "alias"),
        code::USAGE,
        "under two names",
    );
}

#[test]
fn relative_paths_of_flags_start_at_dst() {
    let ground = Ground::new();
    let base = |target_mode, source: &str, target: &str| {
        ground
            .resolve(target_mode, &[source], target)
            .unwrap()
            .target_base
            .to_string()
    };
    assert_eq!(base(TargetMode::Into, "dir", "other"), ".");
    assert_eq!(base(TargetMode::Exact, "dir", "other"), "other");
    assert_eq!(base(TargetMode::Into, "file", "file2"), ".");
}

#[test]
fn a_folder_on_another_volume_is_the_target_tree() {
    let ground = Ground::new();
    let servers = Servers::none();
    let options = ResolveOptions {
        target_mode: TargetMode::Exact,
        writes: false,
        own_tree: false,
        engine: Engine::Auto,
        unfinished: &|_| false,
        servers: &servers,
    };
    // /proc is a separate volume on every Linux system that runs these tests.
    let ends = resolved(&[ground.path("dir")], Path::new("/proc"), &options).unwrap();
    assert_eq!(
        (ends.target_tree, ends.sources[0].target_path.is_root()),
        (Place::Local("/proc".into()), true)
    );
    let options = ResolveOptions {
        own_tree: true,
        engine: Engine::Auto,
        ..options
    };
    let ends = resolved(&[ground.path("dir")], &ground.path("other"), &options).unwrap();
    assert_eq!(
        (ends.target_tree, ends.target_base.is_root()),
        (Place::Local(ground.path("other")), true)
    );
}

#[test]
fn a_check_needs_two_ends_of_one_kind() {
    let ground = Ground::new();
    let resolve_check = |source: &Path, target: &Path| now(resolve_check(source, target, &Servers::none()));
    let failure = resolve_check(&ground.path("dir"), &ground.path("file")).unwrap_err();
    assert_eq!(failure.code, code::USAGE);
    let ((tree, path), (other, _)) = resolve_check(&ground.path("dir"), &ground.path("other")).unwrap();
    assert_eq!(
        (tree, path, other),
        (
            ground.path("dir").into(),
            RelPath::root(),
            ground.path("other").into()
        )
    );
    let missing = resolve_check(&ground.path("dir"), &ground.path("none")).unwrap_err();
    assert_eq!(missing.code, code::SOURCE);
    assert!(
        missing.message.contains("cannot read the target"),
        "{}",
        missing.message
    );
    assert_eq!(
        resolve_check(&ground.path("none"), &ground.path("dir"))
            .unwrap_err()
            .code,
        code::SOURCE
    );
}
