//! Runs builds before their steps, at the lowest priority, since tests leave a third of the machine
//! idle.

use std::collections::BTreeSet;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::process::{shown, wrapped};
use crate::workspace::Workspace;

/// Commands that run one after the other in the background. The step of a failed build runs it again in
/// the foreground, where its output is visible. Dropping this kills the running command.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Names of builds that have not ended.
    waiting: BTreeSet<&'static str>,
    child: Option<Child>,
    stopped: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Runs one command to its end. Returns whether to continue.
    fn run(&self, name: &'static str, mut command: Command) -> bool {
        {
            let mut state = self.lock();
            if state.stopped {
                return false;
            }
            state.child = command.spawn().ok();
        }
        loop {
            let mut state = self.lock();
            let ended = match &mut state.child {
                Some(child) => !matches!(child.try_wait(), Ok(None)),
                None => true,
            };
            if ended {
                state.child = None;
                state.waiting.remove(name);
                self.changed.notify_all();
                return !state.stopped;
            }
            drop(state);
            thread::sleep(std::time::Duration::from_millis(200));
        }
    }
}

impl Ahead {
    /// Starts these builds in order, with their output in `target/ci`.
    pub(crate) fn start(&self, workspace: &Workspace, builds: Vec<(&'static str, Command)>) {
        self.shared
            .lock()
            .waiting
            .extend(builds.iter().map(|(name, _)| *name));
        let shared = Arc::clone(&self.shared);
        let logs = workspace.target().join("ci");
        thread::spawn(move || {
            for (name, command) in builds {
                let log = std::fs::create_dir_all(&logs).and_then(|()| File::create(logs.join(name)));
                let output = || log.as_ref().ok().and_then(|log| log.try_clone().ok());
                let mut gentle = gentle(&command);
                gentle.stdin(Stdio::null());
                gentle.stdout(output().map_or_else(Stdio::null, Stdio::from));
                gentle.stderr(output().map_or_else(Stdio::null, Stdio::from));
                println!("in the background: {}", shown(&command));
                if !shared.run(name, gentle) {
                    return;
                }
            }
        });
    }

    /// Waits until a build has ended; returns at once if it was not started.
    pub(crate) fn wait(&self, name: &str) {
        let mut state = self.shared.lock();
        while state.waiting.contains(name) {
            self.shared.changed.wait(&mut state);
        }
    }
}

impl Ahead {
    /// Waits until all builds have ended.
    pub(crate) fn wait_all(&self) {
        let mut state = self.shared.lock();
        while !state.waiting.is_empty() {
            self.shared.changed.wait(&mut state);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopped = true;
        state.waiting.clear();
        if let Some(child) = &mut state.child {
            // `nice` has become cargo. The compilers end when their pipes are closed.
            let _ = child.kill();
        }
    }
}

/// Returns the same command at the lowest priority.
fn gentle(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]);
    wrapped(nice, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: String) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    #[test]
    fn builds_run_in_order_and_are_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(folder.path());
        let file = folder.path().join("file");
        let ahead = Ahead::default();
        let write = |word: &str| shell(format!("printf {word} >> '{}'", file.display()));
        ahead.start(&workspace, vec![("one", write("a")), ("two", write("b"))]);
        ahead.wait("one");
        assert!(std::fs::read_to_string(&file).unwrap().starts_with('a'));
        ahead.wait("two");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "ab");
        ahead.wait("never started");
    }

    #[test]
    fn what_still_runs_ends_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let (pid, after) = (folder.path().join("pid"), folder.path().join("after"));
        let ahead = Ahead::default();
        let long = shell(format!("echo $$ > '{}'; exec sleep 1000", pid.display()));
        let never = shell(format!("touch '{}'", after.display()));
        ahead.start(
            &Workspace::at(folder.path()),
            vec![("long", long), ("never", never)],
        );
        let id = loop {
            match std::fs::read_to_string(&pid).map(|text| text.trim().parse::<u32>()) {
                Ok(Ok(id)) => break id,
                _ => thread::yield_now(),
            }
        };
        let shared = Arc::clone(&ahead.shared);
        drop(ahead);
        while shared.lock().child.is_some() {
            thread::yield_now();
        }
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
        assert!(!after.exists());
    }
}
