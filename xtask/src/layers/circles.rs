//! Circles of source files: modules that use each other, directly or through others.
//!
//! The graph has an edge from a file to another if it names it by a path that begins with `crate::`
//! or `super::`, tests left out. A circle is a strongly connected component of several files. Paths
//! from a module to its own children (`use child::Item`) are no edges: a module and its children
//! are one unit.

use std::collections::BTreeMap;
use std::path::Path;

use super::scan::ModulePath;

/// Path of a module inside its crate.
type Module = Vec<String>;

/// The graph of one crate.
#[derive(Debug, Default)]
pub(super) struct Graph {
    paths: BTreeMap<Module, Vec<ModulePath>>,
}

impl Graph {
    /// Adds a source file; `inside` is its path below `src`.
    pub(super) fn add(&mut self, inside: &Path, paths: Vec<ModulePath>) {
        if let Some(module) = module(inside) {
            self.paths.insert(module, paths);
        }
    }

    /// Returns the circles, the biggest first, each as sorted module paths.
    pub(super) fn circles(&self) -> Vec<Vec<String>> {
        let modules: Vec<&Module> = self.paths.keys().collect();
        let index = |module: &[String]| modules.iter().position(|known| known.as_slice() == module);
        let edges: Vec<Vec<usize>> = self
            .paths
            .iter()
            .map(|(from, paths)| {
                let targets = paths.iter().filter_map(|path| self.resolve(from, path));
                targets.filter_map(|module| index(&module)).collect()
            })
            .collect();
        let mut circles: Vec<Vec<String>> = components(&edges)
            .into_iter()
            .filter(|component| component.len() > 1)
            .map(|component| {
                let mut names: Vec<String> = component.iter().map(|&at| shown(modules[at])).collect();
                names.sort();
                names
            })
            .collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// Returns the module in which a path ends, if it is another one.
    fn resolve(&self, from: &Module, path: &ModulePath) -> Option<Module> {
        let base = match path.supers {
            0 => Vec::new(),
            supers => from.get(..from.len().checked_sub(supers)?)?.to_vec(),
        };
        let whole: Module = base.into_iter().chain(path.segments.iter().cloned()).collect();
        let found = (0..=whole.len())
            .rev()
            .map(|length| &whole[..length])
            .find(|prefix| self.paths.contains_key(*prefix))?;
        (found != from.as_slice()).then(|| found.to_vec())
    }
}

/// Returns the module of a file below `src`; `None` for files that are not Rust.
fn module(inside: &Path) -> Option<Module> {
    let text = inside.with_extension("");
    let mut module: Module = text
        .components()
        .map(|part| part.as_os_str().to_str().map(str::to_owned))
        .collect::<Option<_>>()?;
    if module
        .last()
        .is_some_and(|last| last == "mod" || last == "lib" || last == "main")
    {
        module.pop();
    }
    Some(module)
}

fn shown(module: &Module) -> String {
    match module.is_empty() {
        true => "lib".to_owned(),
        false => module.join("::"),
    }
}

/// Returns the strongly connected components of a graph: two nodes are in one if each reaches the
/// other. Graphs have some hundred nodes, so reachability by search is fast enough.
fn components(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let reach: Vec<Vec<bool>> = (0..edges.len()).map(|from| reachable(edges, from)).collect();
    let mut taken = vec![false; edges.len()];
    let mut found = Vec::new();
    for from in 0..edges.len() {
        if taken[from] {
            continue;
        }
        let own = (from..edges.len()).filter(|&to| to == from || reach[from][to] && reach[to][from]);
        let component: Vec<usize> = own.collect();
        component.iter().for_each(|&node| taken[node] = true);
        found.push(component);
    }
    found
}

fn reachable(edges: &[Vec<usize>], from: usize) -> Vec<bool> {
    let mut seen = vec![false; edges.len()];
    let mut waiting = vec![from];
    while let Some(node) = waiting.pop() {
        for &next in &edges[node] {
            if !seen[next] {
                seen[next] = true;
                waiting.push(next);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::super::scan::scan;
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let mut graph = Graph::default();
        for (path, text) in files {
            graph.add(Path::new(path), scan(text).unwrap().module_paths);
        }
        graph.circles()
    }

    #[test]
    fn files_that_use_each_other_are_a_circle() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b; pub use a::A;"),
            ("a/mod.rs", "use crate::b::{self, B}; fn f() { crate::c::g() }"),
            ("b.rs", "use super::a::child::Deep;"),
            ("a/child.rs", "use super::A;"),
            ("c.rs", "use crate::d;"),
            ("d.rs", "#[cfg(test)]\nmod tests { use crate::a::A; }"),
        ]);
        assert_eq!(found, [["a", "a::child", "b"]]);
    }

    #[test]
    fn a_tree_of_modules_has_no_circle() {
        let found = circles(&[
            ("main.rs", "mod a; use a::A;"),
            ("a/mod.rs", "mod b; use b::B;"),
            ("a/b.rs", "use super::A; use crate::a::A as Other;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
