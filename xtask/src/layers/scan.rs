//! Finds words and paths in Rust sources by their tokens, so that comments and strings do not count.

use std::str::FromStr;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// Modules of `std` for I/O and threads.
const MODULES: &[&str] = &["fs", "net", "thread", "process"];

/// Types of `std::time` whose `now` reads a clock.
const CLOCKS: &[&str] = &["Instant", "SystemTime"];

/// A path to another module of the same crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModulePath {
    /// Number of leading `super`; 0 for a path that begins with `crate`.
    pub(super) supers: usize,
    /// The names after that.
    pub(super) segments: Vec<String>,
}

/// Findings in one file, with 1-based line numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    /// The keyword `unsafe`, tests included.
    pub(super) unsafe_lines: Vec<usize>,
    /// Paths `std::fs` and the like, outside of items under `#[cfg(test)]`.
    pub(super) std_modules: Vec<(usize, String)>,
    /// Calls such as `Instant::now`, outside of tests.
    pub(super) clocks: Vec<(usize, String)>,
    /// Paths that begin with `crate` or `super`, outside of tests.
    pub(super) module_paths: Vec<ModulePath>,
}

/// Scans one source file.
///
/// # Errors
/// The text does not consist of Rust tokens.
pub(super) fn scan(text: &str) -> Result<Words> {
    // A first line `#!/…` is not a token.
    let text = if text.starts_with("#!/") {
        format!("//{text}")
    } else {
        text.to_owned()
    };
    let tokens = TokenStream::from_str(&text).map_err(|error| anyhow!("{error}"))?;
    let mut words = Words::default();
    walk(tokens, false, &mut words);
    Ok(words)
}

fn walk(tokens: TokenStream, in_test: bool, words: &mut Words) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    // Whether the current item is under `#[cfg(test)]`; it ends with its body or a semicolon.
    let mut test_item = false;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if word == "unsafe" => words.unsafe_lines.push(word.span().start().line),
            TokenTree::Ident(word) if word == "std" && !in_test && !test_item => {
                std_modules(&tokens[index + 1..], words);
            }
            TokenTree::Ident(word) if !in_test && !test_item && CLOCKS.iter().any(|clock| word == clock) => {
                if let Some((TokenTree::Ident(next), _)) = after_colons(&tokens[index + 1..])
                    && next == "now"
                {
                    words
                        .clocks
                        .push((word.span().start().line, format!("{word}::now")));
                }
            }
            TokenTree::Ident(word)
                if (word == "crate" || word == "super")
                    && !in_test
                    && !test_item
                    && !follows_colons(&tokens, index) =>
            {
                let begun = if word == "super" {
                    vec![word.clone()]
                } else {
                    Vec::new()
                };
                words.module_paths.extend(
                    paths(&tokens[index + 1..], begun)
                        .iter()
                        .map(|path| module_path(path)),
                );
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => test_item = false,
            TokenTree::Group(group) => {
                if is_attribute(&tokens, index) {
                    test_item |= is_cfg_test(group);
                }
                walk(group.stream(), in_test || test_item, words);
                if group.delimiter() == Delimiter::Brace {
                    test_item = false;
                }
            }
            _ => {}
        }
    }
}

/// Returns the token after `::` and the rest.
fn after_colons(tokens: &[TokenTree]) -> Option<(&TokenTree, &[TokenTree])> {
    match tokens {
        [TokenTree::Punct(first), TokenTree::Punct(second), next, rest @ ..]
            if first.as_char() == ':' && second.as_char() == ':' =>
        {
            Some((next, rest))
        }
        _ => None,
    }
}

/// Whether a token is in the middle of a path, as `super` in `super::super`.
fn follows_colons(tokens: &[TokenTree], index: usize) -> bool {
    let before = index.checked_sub(1).and_then(|before| tokens.get(before));
    matches!(before, Some(TokenTree::Punct(mark)) if mark.as_char() == ':')
}

/// Returns the paths after a name, each behind `begun`: `::a::b`, or several in `::{a, b::c}`.
fn paths(after: &[TokenTree], mut begun: Vec<Ident>) -> Vec<Vec<Ident>> {
    match after_colons(after) {
        Some((TokenTree::Ident(word), rest)) => {
            begun.push(word.clone());
            paths(rest, begun)
        }
        Some((TokenTree::Group(group), _)) if group.delimiter() == Delimiter::Brace => {
            let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
            let is_comma =
                |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',');
            let mut found = Vec::new();
            for part in tokens.split(is_comma) {
                if let [TokenTree::Ident(word), rest @ ..] = part {
                    let own = (word != "self").then(|| word.clone());
                    found.extend(paths(rest, begun.iter().cloned().chain(own).collect()));
                }
            }
            found
        }
        _ => vec![begun],
    }
}

fn module_path(path: &[Ident]) -> ModulePath {
    let supers = path.iter().take_while(|word| *word == "super").count();
    ModulePath {
        supers,
        segments: path[supers..].iter().map(ToString::to_string).collect(),
    }
}

fn is_attribute(tokens: &[TokenTree], index: usize) -> bool {
    let before = index.checked_sub(1).and_then(|before| tokens.get(before));
    matches!(before, Some(TokenTree::Punct(mark)) if mark.as_char() == '#')
}

/// Whether an attribute is `[cfg(test)]` or `[cfg(any(test, …))]`: the product does not contain such
/// code by default.
fn is_cfg_test(group: &Group) -> bool {
    let mut tokens = group.stream().into_iter();
    let cfg = matches!(tokens.next(), Some(TokenTree::Ident(word)) if word == "cfg");
    let Some(TokenTree::Group(condition)) = tokens.next() else {
        return false;
    };
    let text = condition.stream().to_string();
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    cfg && words.contains(&"test") && !words.contains(&"not")
}

/// Notes the modules of [`MODULES`] in the paths after `std`, each once.
fn std_modules(after: &[TokenTree], words: &mut Words) {
    let paths = paths(after, Vec::new());
    let modules = paths.iter().filter_map(|path| path.first());
    for module in modules.filter(|module| MODULES.iter().any(|known| *module == known)) {
        let found = (module.span().start().line, module.to_string());
        if words.std_modules.last() != Some(&found) {
            words.std_modules.push(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_names_do_not_count() {
        let text = "//! unsafe\n/* unsafe /* unsafe */ */\n/// unsafe\n#![forbid(unsafe_code)]\n\
                    fn a<'unsafe_>() { let b = \"unsafe std::fs\"; let c = r#\"unsafe\"#; let d = 'u'; }\n";
        assert_eq!(scan(text).unwrap(), Words::default());
    }

    #[test]
    fn the_keyword_is_found_with_its_line_even_in_tests() {
        let text = "fn a() {\n  unsafe { b() }\n}\n#[cfg(test)]\nmod t {\n  unsafe impl Send for X {}\n}\n";
        assert_eq!(scan(text).unwrap().unsafe_lines, [2, 6]);
    }

    #[test]
    fn modules_are_found_in_paths_and_lists() {
        let text = "use std::fs;\nuse std::{io, sync::Arc,\n thread::{self, net}};\nfn a() { ::std::net::b(); }\n\
                    use std::fmt;\nuse my::std_fs;\n";
        let found = scan(text).unwrap().std_modules;
        let expected = [(1, "fs"), (3, "thread"), (4, "net")].map(|(line, module)| (line, module.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn clocks_and_paths_of_modules_are_found() {
        let text = "use crate::{a, b::{self, c}};\nfn f() { super::super::d::e(); Instant::now(); std::time::SystemTime::now() }\n\
                    #[cfg(test)]\nmod t { fn g() { Instant::now(); crate::x::y() } }\n";
        let words = scan(text).unwrap();
        let clocks: Vec<_> = words
            .clocks
            .iter()
            .map(|(line, clock)| (*line, clock.as_str()))
            .collect();
        assert_eq!(clocks, [(2, "Instant::now"), (2, "SystemTime::now")]);
        let paths: Vec<_> = (words.module_paths.iter())
            .map(|path| (path.supers, path.segments.join("::")))
            .collect();
        let wanted = [(0, "a"), (0, "b"), (0, "b::c"), (2, "d::e")];
        assert_eq!(paths, wanted.map(|(supers, path)| (supers, path.to_owned())));
    }

    #[test]
    fn items_of_tests_are_exempt_and_what_follows_is_not() {
        let text = "#[cfg(test)]\nuse std::fs;\n#[cfg(test)]\nmod t { use std::thread; fn f() { std::fs::x() } }\n\
                    #[cfg(not(test))]\nmod u { use std::net; }\nuse std::process;\n";
        let found = scan(text).unwrap().std_modules;
        assert_eq!(found, [(6, "net".to_owned()), (7, "process".to_owned())]);
    }

    #[test]
    fn text_that_is_not_rust_is_an_error() {
        assert!(scan("fn a( {").is_err());
    }
}
