//! Tests of the layers, on the real command line.

use super::*;
use crate::args::CopyArgs;
use ropeway_vfs::CacheMode;

fn copy(flags: &[&str], environment: &[(&str, &str)], config: &str) -> Result<CopyArgs, Failure> {
    let arguments = ["ropeway", "copy"]
        .iter()
        .chain(flags)
        .chain(&["a", "b"])
        .map(OsString::from)
        .collect();
    let lookup = |name: &str| {
        environment
            .iter()
            .find(|(variable, _)| *variable == name)
            .map(|(_, value)| OsString::from(value))
    };
    let config = Config::parse("config.toml", config)?;
    match parse(arguments, &lookup, &config)? {
        Parsed::Command(command) => match *command {
            Command::Copy(args) => Ok(*args),
            other => panic!("{other:?}"),
        },
        Parsed::Text { text, .. } => panic!("{text}"),
    }
}

#[test]
fn flag_over_environment_over_command_table_over_top_level() {
    let config = "cache = \"keep\"\n[copy]\ncache = \"leave\"\n";
    let cache = |flags: &[&str], environment: &[(&str, &str)], config: &str| {
        copy(flags, environment, config).unwrap().transfer.speed.cache
    };
    let set = [("ROPEWAY_CACHE", "direct")];
    assert_eq!(cache(&[], &[], ""), CacheMode::Auto);
    assert_eq!(cache(&[], &[], "cache = \"keep\""), CacheMode::Keep);
    assert_eq!(cache(&[], &[], config), CacheMode::Leave);
    assert_eq!(cache(&[], &set, config), CacheMode::Direct);
    assert_eq!(cache(&["--cache", "auto"], &set, config), CacheMode::Auto);
}

#[test]
fn a_lower_layer_sets_switches_and_a_higher_one_clears_them() {
    let verify = |flags: &[&str], environment: &[(&str, &str)], config: &str| {
        copy(flags, environment, config).unwrap().transfer.verify
    };
    assert!(!verify(&[], &[], ""));
    assert!(verify(&["--verify"], &[], ""));
    assert!(verify(&[], &[("ROPEWAY_VERIFY", "1")], ""));
    assert!(verify(&[], &[("ROPEWAY_VERIFY", "yes")], "verify = false"));
    assert!(!verify(&[], &[("ROPEWAY_VERIFY", "off")], "verify = true"));
    assert!(!verify(
        &["--verify=false"],
        &[("ROPEWAY_VERIFY", "1")],
        "verify = true"
    ));
    assert!(
        !verify(&[], &[("ROPEWAY_VERIFY", "")], ""),
        "an empty variable is not set"
    );
}

#[test]
fn short_switches_can_be_combined() {
    let args = copy(&["-nvx", "-Tq"], &[], "").unwrap();
    assert!(args.transfer.dry_run && args.transfer.output.verbose && args.transfer.select.one_file_system);
    assert!(args.no_target_directory && args.transfer.output.quiet);
    assert_eq!(args.ends().unwrap().0, [std::path::PathBuf::from("a")]);
}

#[test]
fn the_values_of_a_list_come_from_one_layer() {
    let exclude = |flags: &[&str], environment: &[(&str, &str)], config: &str| {
        copy(flags, environment, config).unwrap().transfer.select.exclude
    };
    let config = "exclude = [\"*.o\", \"a,b\"]";
    assert_eq!(exclude(&[], &[], config), ["*.o", "a,b"]);
    assert_eq!(
        exclude(&[], &[("ROPEWAY_EXCLUDE", "x y\n*.c\n")], config),
        ["x y", "*.c"]
    );
    assert_eq!(
        exclude(
            &["--exclude", "1", "--exclude=2"],
            &[("ROPEWAY_EXCLUDE", "x")],
            config
        ),
        ["1", "2"]
    );
    assert_eq!(exclude(&[], &[], "exclude = \"one\""), ["one"]);
    assert!(copy(&[], &[], "cache = [\"keep\"]").is_err());
}

#[test]
fn a_flag_with_an_optional_value_works_in_both_forms() {
    let backup = |flags: &[&str], config: &str| copy(flags, &[], config).unwrap().transfer.existing.backup;
    assert_eq!(backup(&[], ""), None);
    assert_eq!(backup(&["--backup"], ""), Some("~".into()));
    assert_eq!(backup(&["--backup=.old"], ""), Some(".old".into()));
    assert_eq!(backup(&[], "backup = true"), Some("~".into()));
    assert_eq!(backup(&[], "backup = false"), None);
    assert_eq!(backup(&[], "backup = \".bak\""), Some(".bak".into()));
}

#[test]
fn errors_name_the_variable_or_line() {
    let failure = copy(&[], &[("ROPEWAY_CACHE", "warm")], "").unwrap_err();
    assert!(
        failure.message.starts_with("ROPEWAY_CACHE: "),
        "{}",
        failure.message
    );
    assert!(failure.message.contains("warm"), "{}", failure.message);
    let failure = copy(&[], &[], "\nretries = \"many\"").unwrap_err();
    assert!(
        failure.message.starts_with("config.toml:2: "),
        "{}",
        failure.message
    );
    let failure = copy(&["--cache", "warm"], &[], "").unwrap_err();
    assert_eq!((failure.code, failure.message.lines().count()), (1, 1));
    let failure = copy(&["--no-such-flag"], &[], "").unwrap_err();
    assert_eq!(failure.code, 1);
    assert!(failure.message.contains("--no-such-flag"));
}

#[test]
fn settings_of_other_commands_are_ignored() {
    assert!(
        copy(
            &[],
            &[("ROPEWAY_MAX_DELETE", "?")],
            "max-delete = 3\n[mirror]\nyes = true"
        )
        .is_ok()
    );
}

#[test]
fn no_flag_has_a_reserved_variable() {
    // Variables that do not belong to a flag.
    let reserved = [
        "ROPEWAY_IO",
        "ROPEWAY_PASSWORD",
        "ROPEWAY_DEBUG",
        "ROPEWAY_FAR",
        "ROPEWAY_FAR_NETNS",
    ];
    for sub in Cli::command().get_subcommands() {
        for long in sub.get_arguments().filter_map(|arg| arg.get_long()) {
            assert!(!reserved.contains(&variable(long).as_str()), "{long}");
        }
    }
    assert_eq!(variable("no-hard-links"), "ROPEWAY_NO_HARD_LINKS");
}

#[test]
fn help_and_version_are_printed_with_exit_code_0() {
    for flag in ["--help", "-h", "--version"] {
        let arguments = ["ropeway", flag].iter().map(OsString::from).collect();
        match parse(arguments, &|_| None, &Config::default()).unwrap() {
            Parsed::Text { text, code } => assert!(code == 0 && text.contains("ropeway"), "{text}"),
            Parsed::Command(_) => panic!("{flag}"),
        }
    }
    let arguments = vec![OsString::from("ropeway")];
    assert_eq!(
        parse(arguments, &|_| None, &Config::default()).unwrap_err().code,
        1
    );
    let arguments = ["ropeway", "copy", "--help"].iter().map(OsString::from).collect();
    let Parsed::Text { text, .. } = parse(arguments, &|_| None, &Config::default()).unwrap() else {
        panic!()
    };
    assert!(text.contains("--verify\n") && !text.contains("BOOL"), "{text}");
}

#[test]
fn a_variable_that_is_nearly_that_of_a_flag_is_refused() {
    let check = |name: &str| check_environment([OsString::from(name)].into_iter());
    let failure = check("ROPEWAY_VERIFI").unwrap_err();
    assert_eq!(failure.code, code::USAGE);
    assert!(failure.message.contains("ROPEWAY_VERIFI"), "{failure:?}");
    assert!(failure.hint.is_some_and(|hint| hint.contains("ROPEWAY_VERIFY")));
    for name in [
        "ROPEWAY_VERIFY",
        "ROPEWAY_PASSWORD",
        "ROPEWAY_FAR",
        "ROPEWAY_SEEDS",
        "ROPEWAY_MOUNT_STEPS",
        "PATH",
    ] {
        assert_eq!(check(name), Ok(()), "{name}");
    }
}
