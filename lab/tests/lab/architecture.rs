//! The invariants of ARCHITECTURE.md, held against the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .exec()
        .expect("cargo metadata runs in the workspace")
}

/// The packages that end up in what users build on Linux: reachable without development dependencies.
fn linked() -> Vec<Package> {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(["--filter-platform".to_string(), "x86_64-unknown-linux-gnu".to_string()])
        .exec()
        .expect("cargo metadata runs in the workspace");
    let resolve = metadata.resolve.as_ref().expect("metadata resolves dependencies");
    let mut unseen = metadata.workspace_members.clone();
    let mut seen = BTreeSet::new();
    while let Some(id) = unseen.pop() {
        if seen.insert(id.clone()) {
            let node = resolve.nodes.iter().find(|n| n.id == id).expect("every member of the graph is a node");
            let normal = node.deps.iter().filter(|d| d.dep_kinds.iter().any(|k| k.kind != DependencyKind::Development));
            unseen.extend(normal.map(|d| d.pkg.clone()));
        }
    }
    metadata.packages.into_iter().filter(|p| seen.contains(&p.id)).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("lab lies in the workspace").to_path_buf()
}

/// Direct normal dependencies of each workspace crate.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    metadata
        .workspace_packages()
        .into_iter()
        .map(|p| {
            let names = p.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal).map(|d| d.name.clone());
            (p.name.to_string(), names.collect())
        })
        .collect()
}

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, into: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(dir).expect("a source folder is readable") {
            let path = entry.expect("a source folder is readable").path();
            if path.is_dir() {
                walk(&path, into);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("sources are UTF-8");
                into.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    let at = root().join(folder);
    if at.is_file() {
        let text = fs::read_to_string(&at).expect("sources are UTF-8");
        return vec![(at, text)];
    }
    assert!(at.is_dir(), "no folder {folder}");
    walk(&at, &mut found);
    found
}

/// The lines of a file above its tests, without comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    // A module of tests in a file of its own is named anywhere; one in the file is its end.
    let is_tests = |at: usize| text.lines().nth(at + 1).is_some_and(|next| next.ends_with('{'));
    text.lines()
        .enumerate()
        .take_while(move |(n, l)| !(l.starts_with("#[cfg(test)]") && is_tests(*n)))
        .filter(|(_, l)| !l.trim_start().starts_with("//"))
        .map(|(n, l)| (n + 1, l))
}

fn assert_absent(folder: &str, words: &[&str], exempt: &[&str]) {
    let mut found = Vec::new();
    for (path, text) in sources(folder) {
        let shown = path.strip_prefix(root()).expect("under the root").display().to_string();
        let tests = shown.ends_with("/tests.rs") || shown.contains("/tests/") || shown.contains("/vectors");
        if tests || exempt.iter().any(|e| shown.starts_with(e)) {
            continue;
        }
        for (n, line) in code(&text) {
            found.extend(words.iter().filter(|w| line.contains(**w)).map(|w| format!("{shown}:{n}: {w}")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn invariant_1_keys_and_delivery_do_not_import_each_other() {
    let dependencies = dependencies();
    assert!(!dependencies["sealcast-keys"].contains("sealcast-delivery"));
    assert!(!dependencies["sealcast-delivery"].contains("sealcast-keys"));
    assert!(
        !dependencies["sealcast-delivery"].contains("sealcast-broker"),
        "the brokers' client is a crate of its own"
    );
    assert!(!dependencies["sealcast-client"].contains("sealcast-keys"));
    for leaf in ["sealcast-wire", "sealcast-crypto"] {
        let above = ["sealcast-keys", "sealcast-delivery", "sealcast"];
        assert!(above.iter().all(|a| !dependencies[leaf].contains(*a)), "{leaf} imports something above it");
    }
    assert!(!dependencies["sealcast-wire"].contains("sealcast-crypto"), "wire holds no mathematics");
}

const IMPURE: &[&str] = &[
    "std::net::UdpSocket",
    "std::net::Tcp",
    "std::fs",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "getrandom",
    "OsRng",
    "thread_rng",
    "SystemRandom::new",
];

#[test]
fn invariant_2_pure_crates_hold_no_sockets_files_threads_clocks_or_global_randomness() {
    let broker = [
        "broker/src/access",
        "broker/src/cluster_file",
        "broker/src/expression",
        "broker/src/genesis.rs",
        "broker/src/operation",
        "broker/src/protocol",
        "broker/src/receipt.rs",
        "broker/src/state",
        "brokerd/src/shares/dkg",
        "brokerd/src/shares/dkg.rs",
        "brokerd/src/shares/dealer.rs",
        "brokerd/src/shares/word.rs",
    ];
    for pure in ["wire/src", "keys/src", "delivery/src", "client/src", "relay/src"].into_iter().chain(broker) {
        assert_absent(pure, IMPURE, &[]);
    }
    // aws-lc-rs's signing calls ask for a generator where the algorithm is randomised (ECDSA); that is the one exception.
    assert_absent("crypto/src", IMPURE, &["crypto/src/signature.rs"]);
    assert_absent("sealcast/src/group", IMPURE, &[]);
    assert_absent("sealcast/src/session/core", IMPURE, &[]);
}

#[test]
fn invariant_2_pure_crates_keep_to_a_short_list_of_dependencies() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("sealcast-wire", &["thiserror"][..]),
        (
            "sealcast-crypto",
            &[
                "sealcast-wire",
                "aws-lc-rs",
                "bech32",
                "blake3",
                "curve25519-dalek",
                "p256",
                "pem",
                "rand_core",
                "rcgen",
                "rustls-pki-types",
                "rustls-webpki",
                "subtle",
                "thiserror",
                "time",
                "x509-parser",
                "zeroize",
            ][..],
        ),
        (
            "sealcast-keys",
            &[
                "sealcast-wire",
                "sealcast-crypto",
                // The named exception to purity, behind `keys::mls::engine`.
                "mls-rs",
                "mls-rs-core",
                "rand_core",
                "rand_chacha",
                "thiserror",
                "zeroize",
            ][..],
        ),
        (
            "sealcast-delivery",
            &["sealcast-wire", "sealcast-crypto", "sealcast-relay", "reed-solomon-simd", "thiserror"][..],
        ),
        ("sealcast-client", &["sealcast-wire", "sealcast-crypto", "sealcast-broker", "sealcast-delivery"][..]),
        ("sealcast-relay", &["sealcast-wire", "sealcast-crypto", "thiserror"][..]),
        ("sealcast-order", &["sealcast-wire", "aws-lc-rs", "bytes", "futures", "thiserror", "zeroize"][..]),
        (
            "sealcast-order-engine",
            &[
                "sealcast-wire",
                "sealcast-order",
                "bytes",
                "commonware-actor",
                "commonware-broadcast",
                "commonware-codec",
                "commonware-consensus",
                "commonware-cryptography",
                "commonware-p2p",
                "commonware-parallel",
                "commonware-runtime",
                "commonware-storage",
                "commonware-stream",
                "commonware-utils",
                "futures",
                "rand_chacha",
                "rand_core",
                "thiserror",
            ][..],
        ),
        ("sealcast-broker", &["sealcast-wire", "sealcast-crypto", "hex", "serde", "thiserror", "toml"][..]),
    ]);
    let dependencies = dependencies();
    for (name, allowed) in allowed {
        let extra: Vec<_> = dependencies[name].iter().filter(|d| !allowed.contains(&d.as_str())).collect();
        assert!(extra.is_empty(), "{name} imports {extra:?}");
    }
}

#[test]
fn invariant_3_delivery_never_sees_a_key() {
    assert_absent(
        "delivery/src",
        &["crypto::aead", "crypto::secret", "crypto::kdf", "crypto::dutta_barua", "crypto::bootstrap"],
        &["delivery/src/testing.rs"],
    );
}

#[test]
fn invariant_4_no_hash_map_whose_order_can_reach_an_output() {
    for pure in [
        "wire/src",
        "crypto/src",
        "keys/src",
        "order/src",
        "order/engine/src",
        "broker/src",
        "relay/src",
        "sealcast/src/group",
        "sealcast/src/session/core",
    ] {
        assert_absent(pure, &["HashMap", "HashSet"], &[]);
    }
}

/// What a format fixes (LCM's thresholds, the room for a proof, the parts of a vouch) is no limit of ours.
const OF_A_FORMAT: &[&str] = &[
    "SEGMENT_MAX",
    "CHANNEL_BYTES_MAX",
    "SHORT_BYTES_MAX",
    "PROOF_BYTES_MAX",
    "OBJECT_BYTES_MAX",
    "PARTS_MAX",
    "NAMED_MAX",
    "STAMPS_MAX",
];

#[test]
fn invariant_5_every_limit_lies_in_wire_limits() {
    let mut found = Vec::new();
    for folder in [
        "keys/src",
        "delivery/src",
        "client/src",
        "order/src",
        "order/engine/src",
        "broker/src",
        "relay/src",
        "sealcast/src/group",
        "sealcast/src/session/core",
    ] {
        for (path, text) in sources(folder) {
            for (n, line) in code(&text) {
                let name = line.split("const ").nth(1).and_then(|l| l.split_once(": usize")).map(|(name, _)| name);
                if name.is_some_and(|name| name.ends_with("_MAX") && !OF_A_FORMAT.contains(&name)) {
                    found.push(format!("{}:{n}: {}", path.display(), line.trim()));
                }
            }
        }
    }
    assert!(found.is_empty(), "limits belong in wire::limits:\n{}", found.join("\n"));
}

/// What there is too much of, by name: how many lines of these folders' code hold one of these words.
struct Most {
    what: &'static str,
    most: usize,
    found: Vec<String>,
}

impl Most {
    fn lines(what: &'static str, most: usize, folders: &[&str], exempt: &[&str], words: &[&str]) -> Most {
        let mut found = Vec::new();
        for (path, text) in folders.iter().flat_map(|folder| sources(folder)) {
            let shown = path.strip_prefix(root()).expect("under the root").display().to_string();
            if shown.contains("/tests") || exempt.iter().any(|it| shown.starts_with(it)) {
                continue;
            }
            let lines = code(&text).filter(|(_, line)| words.iter().any(|word| line.contains(word)));
            found.extend(lines.map(|(n, line)| format!("{shown}:{n}: {}", line.trim())));
        }
        Most { what, most, found }
    }

    /// Files that hold a word of each of two lists.
    fn files(what: &'static str, most: usize, folders: &[&str], one: &[&str], other: &[&str]) -> Most {
        let has = |text: &str, words: &[&str]| code(text).any(|(_, line)| words.iter().any(|word| line.contains(word)));
        let files = folders.iter().flat_map(|folder| sources(folder));
        let found = files.filter(|(_, text)| has(text, one) && has(text, other));
        Most { what, most, found: found.map(|(path, _)| path.display().to_string()).collect() }
    }

    /// Methods of a trait; with `default`, those that an implementation may forget.
    fn methods(what: &'static str, most: usize, file: &str, of: &str, default: bool) -> Most {
        let text = fs::read_to_string(root().join(file)).expect("the trait's file is readable");
        let body =
            text.split(&format!("pub trait {of}")).nth(1).and_then(|it| it.split("\n}").next()).expect("a trait");
        let methods = body.split("\n    fn ").skip(1);
        let head = |it: &str| it.split("\n\n").next().unwrap_or_default().trim_end().to_owned();
        let found = methods.map(head).filter(|it| !default || it.contains('{')).collect();
        Most { what, most, found }
    }
}

/// What the join of keys and transports has too much of. A change lowers a number here or leaves it.
#[test]
fn the_join_grows_no_more() {
    let (keys, delivery) = ("keys/src/lib.rs", "delivery/src/lib.rs");
    let above = ["sealcast/src", "lab/src", "cli/src", "brokerd/sim/src"];
    let named = [
        "Contributory",
        "contributory::",
        "Threshold",
        "threshold::",
        "Quorum",
        "quorum",
        "sealcast_client",
        "Plain",
        "plain::",
        "Multicast",
        "multicast::",
        "brokers::",
        "Brokers",
        "Ordered::",
    ];
    let polls_keys = ["keys.poll(", "sealing.poll("];
    let counts = [
        Most::files("drivers", 1, &above, &polls_keys, &["delivery.poll(", "quorum.poll("]),
        Most::methods("methods of Keys", 7, keys, "Keys", false),
        Most::methods("default methods of Keys", 0, keys, "Keys", true),
        Most::methods("methods of Delivery", 7, delivery, "Delivery", false),
        Most::methods("default methods of Delivery", 0, delivery, "Delivery", true),
        Most::lines(
            "wrappers that forward a trait",
            3,
            &[keys, delivery, "sealcast/src", "lab/src/tap.rs"],
            &[],
            &["Keys for ", "Delivery for "],
        ),
        Most::lines(
            "lines that name a scheme or a transport",
            10,
            &["wire/src", "delivery/src", "sealcast/src"],
            &[
                "delivery/src/multicast",
                "delivery/src/memory",
                "delivery/src/sequencer",
                // URLs and the table of pairs.
                "sealcast/src/url",
                "sealcast/src/code.rs",
                "sealcast/src/remedy.rs",
                // What only brokers do: the handle that users hold, and its part of a session.
                "sealcast/src/brokers",
                "sealcast/src/session/brokers.rs",
                // Constructors, and each transport's own shell.
                "sealcast/src/session/parts.rs",
                "sealcast/src/session/schemes.rs",
                "sealcast/src/session/transports",
            ],
            &named,
        ),
        Most::lines("callers of sealcast::brokers", 26, &["cli/src", "lab/src"], &[], &["sealcast::brokers"]),
    ];
    let wrong = counts.iter().filter(|it| it.found.len() != it.most);
    let told: Vec<_> = wrong
        .map(|it| format!("{}: {} and not {}\n{}", it.what, it.found.len(), it.most, it.found.join("\n")))
        .collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
}

/// The packages of a program that depends on `sealcast` alone, procedural macros aside.
fn packages_of_a_program(features: &[&str]) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["tree", "--locked", "-p", "sealcast", "--edges", "normal,no-proc-macro", "--prefix", "none"])
        .args(features)
        .output()
        .expect("cargo tree runs in the workspace");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).expect("text");
    // `name v1.2.3 (path) (*)`.
    let package = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    tree.lines().filter(|line| !line.is_empty()).map(package).collect()
}

#[test]
fn a_program_on_a_lan_links_no_brokers_client_tls_or_threshold_cryptography() {
    let lan = packages_of_a_program(&[]);
    assert!(lan.len() <= 95, "{} packages: {lan:?}", lan.len());
    for absent in ["sealcast-broker ", "sealcast-client ", "sealcast-tls ", "rustls ", "p256 "] {
        assert!(!lan.iter().any(|it| it.starts_with(absent)), "{absent}is linked");
        let brokers = packages_of_a_program(&["--features", "brokers"]);
        assert!(brokers.iter().any(|it| it.starts_with(absent)), "{absent}would not be found");
    }
}

/// What a library's user types is the program's to say: `cli/src/remedy.rs`.
#[test]
fn the_library_says_no_line_of_the_program() {
    let commands =
        ["init", "join", "invite", "id", "ca", "ctx", "pub", "sub", "group", "brokers", "policy", "read", "doctor"];
    let said = |line: &str| commands.iter().any(|it| line.contains(&format!("sealcast {it} ")));
    assert!(said(r#"hint("sealcast id ls; then")"#), "a planted one is found");
    for (path, text) in sources("sealcast/src") {
        let found: Vec<_> = code(&text).filter(|(_, line)| said(line)).collect();
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}

#[test]
fn quotes_are_straight() {
    for folder in [
        "wire", "crypto", "keys", "delivery", "client", "broker", "brokerd", "sealcast", "kdc", "cli", "lab", "sim",
        "tls", "relay", "relayd",
    ] {
        for (path, text) in sources(folder) {
            let found = text.lines().position(|line| line.contains(['\u{ab}', '\u{bb}']));
            assert_eq!(found, None, "{}", path.display());
        }
    }
}

#[test]
fn invariant_6_nothing_imports_lab() {
    for (name, dependencies) in dependencies() {
        assert!(!dependencies.contains("sealcast-lab"), "{name} imports lab");
    }
}

/// What tests and demonstrations start is in packages of its own, which nothing that is installed imports.
#[test]
fn nothing_that_is_installed_imports_what_tests_are_made_of() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("the Makefile is readable");
    let line = |start: &str| makefile.lines().find(|line| line.starts_with(start)).expect(start);
    assert_eq!(line("PROGRAMS :="), "PROGRAMS := sealcast sealcast-lab sealcast-broker sealcast-relay");
    assert!(!line("BUILD_PROGRAMS :=").contains("-testing"), "what is installed is built without them");
    for (name, dependencies) in dependencies() {
        let testing: Vec<_> = dependencies.iter().filter(|d| d.ends_with("-testing")).collect();
        let is_test_only = name.ends_with("-testing") || name == "sealcast-brokers-sim";
        assert!(is_test_only || testing.is_empty(), "{name} imports {testing:?}");
    }
}

/// What is tested is what ships: a development dependency that named features would build the others anew with them.
#[test]
fn no_development_dependency_names_features() {
    for package in metadata().workspace_packages() {
        let ours = package.dependencies.iter().filter(|d| d.kind == DependencyKind::Development && d.path.is_some());
        let features: Vec<_> = ours.filter(|d| !d.features.is_empty()).map(|d| (&d.name, &d.features)).collect();
        assert!(features.is_empty(), "{} tests with {features:?}", package.name);
    }
}

#[test]
fn invariant_7_the_engine_stays_in_its_crate_and_what_is_alpha_upstream_in_one_file() {
    let linking =
        ["sealcast-brokerd-program", "sealcast-brokerd-testing", "sealcast-brokers-sim", "sealcast-order-testing"];
    for (name, dependencies) in dependencies() {
        let engine: Vec<_> = dependencies.iter().filter(|d| d.starts_with("commonware")).collect();
        let is_engine = ["sealcast-order-engine", "sealcast-order-testing"].contains(&&*name);
        assert!(is_engine || engine.is_empty(), "{name} imports {engine:?}");
        let links = dependencies.contains("sealcast-order-engine");
        assert_eq!(links, linking.contains(&&*name), "{name} links the engine, or should");
    }
    let alpha = ["consensus::Application", "Inline", "Deferred", "Ancestry", "marshal::coding", "commonware_glue"];
    assert_absent("order/engine/src", &alpha, &["order/engine/src/alpha.rs"]);
    assert_absent("order/engine/src", &["simulated::"], &[]);
}

/// `brokerd` does not import `sealcast`, and says the same.
#[test]
fn codes_of_brokers_are_those_of_sealcast() {
    let text = fs::read_to_string(root().join("brokerd/src/code.rs")).expect("it is readable");
    let said = text.lines().filter_map(|line| line.trim().strip_suffix(',')?.split_once(" = "));
    let mut count = 0;
    for (name, number) in said {
        let code = sealcast::code::Code::of_number(number.parse().expect("a number")).expect(name);
        assert_eq!((format!("{code:?}"), u16::from(code.exit())), (name.to_owned(), code.number() / 100));
        count += 1;
    }
    assert!(count >= 6, "only {count} codes were found");
}

#[test]
fn every_dependency_has_its_reason() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace manifest is readable");
    let section = manifest.split("[workspace.dependencies]").nth(1).expect("the manifest lists dependencies");
    let section = section.split("\n[").next().expect("split yields at least one part");
    let silent: Vec<_> = section
        .lines()
        .filter(|l| {
            l.contains('=') && !l.starts_with("sealcast") && !l.trim_start().starts_with('#') && !l.contains(" # ")
        })
        .collect();
    assert!(silent.is_empty(), "no reason given:\n{}", silent.join("\n"));
}

#[test]
fn licences_of_all_dependencies_are_allowed() {
    let deny = fs::read_to_string(root().join("deny.toml")).expect("deny.toml is readable");
    let list = deny.split("allow = [").nth(1).and_then(|s| s.split(']').next()).expect("deny.toml lists licences");
    let allowed: BTreeSet<&str> = list.split('"').skip(1).step_by(2).collect();
    let banned: BTreeSet<&str> = deny.split("name = \"").skip(1).filter_map(|s| s.split('"').next()).collect();
    let mut wrong = Vec::new();
    for package in linked() {
        if banned.contains(package.name.as_str()) {
            wrong.push(format!("{} is banned", package.name));
        }
        let Some(license) = &package.license else {
            wrong.push(format!("{} names no licence", package.name));
            continue;
        };
        // Of alternatives one must be allowed, of conjuncts all.
        let expression = license.replace('/', " OR ").replace(['(', ')'], "");
        let fine = expression.split(" AND ").all(|c| c.split(" OR ").any(|l| allowed.contains(l.trim())));
        if !fine {
            wrong.push(format!("{}: {license}", package.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_of_this_stage_has_a_test_with_its_id() {
    let mut text = String::new();
    let folders = [
        "wire", "crypto", "keys", "delivery", "client", "order", "broker", "tls", "brokerd", "sealcast", "kdc", "cli",
        "lab", "relay", "relayd",
    ];
    for folder in folders {
        for (_, source) in sources(folder) {
            text.push_str(&source);
        }
    }
    let rules = (1..=11).map(|n| format!("rule_g{n}_")).chain((1..=14).map(|n| format!("rule_a{n}_")));
    // Of the brokers; E5 is of module 4, which comes later.
    let brokers = (1..=4).chain(6..=14).map(|n| format!("rule_e{n}_"));
    // Of the ordered channel, and of the key distribution centre.
    let ordered = (1..=10).map(|n| format!("rule_b{n}_")).chain((1..=3).map(|n| format!("rule_c{n}_")));
    // Of LCMsec, and of LSGC.
    let weaknesses = (1..=17).map(|n| format!("w{n}_")).chain((1..=23).map(|n| format!("lsgc_w{n}_")));
    // Of threshold encryption as printed: tdh2 and threshold_prf of crypto.
    let printed = (1..=17).chain([28, 29, 30]).map(|n| format!("s{n}_"));
    let functions = text.split("fn ").skip(1).filter_map(|s| s.split('(').next());
    // A macro makes a test of each line `name = "scenario",`.
    let scenarios = text.split("\nscenarios! {").skip(1).filter_map(|s| s.split("\n}").next());
    let of_scenarios = scenarios.flat_map(str::lines).filter_map(|line| line.trim().split_once(" = ")).map(|it| it.0);
    let names: Vec<&str> = functions.chain(of_scenarios).collect();
    // Weaknesses of LSGC have the numbers of LCMsec's.
    let is_of = |name: &str, id: &str| {
        name.starts_with(id) || name.contains(&format!("_{id}")) && !(id.starts_with('w') && name.starts_with("lsgc_"))
    };
    let missing: Vec<_> = rules
        .chain(brokers)
        .chain(ordered)
        .chain(weaknesses)
        .chain(printed)
        .filter(|id| !names.iter().any(|name| is_of(name, id)))
        .collect();
    assert!(missing.is_empty(), "no test is named for {}", missing.join(", "));
}

/// The rows of a table of docs/glossary.md, without its head: their cells.
fn glossary(heading: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("docs/glossary.md")).expect("the glossary is readable");
    let section = text.split(&format!("\n## {heading}\n")).nth(1).expect("the glossary has this section");
    let section = section.split("\n## ").next().expect("split yields at least one part");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The length of the token at the start of `text`, and whether it is an identifier; a comment or a literal is one token.
fn token(text: &str) -> (usize, bool) {
    let until = |from: usize, end: &str| text[from..].find(end).map_or(text.len(), |at| from + at + end.len());
    let word = |from: usize| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        text[from..].find(|c| !is_part(c)).map_or(text.len(), |at| from + at)
    };
    let mut chars = text.chars();
    let (first, second, third) = (chars.next(), chars.next(), chars.next());
    match (first.expect("there is more text"), second, third) {
        ('/', Some('/'), _) => (until(2, "\n"), false),
        ('/', Some('*'), _) => (until(2, "*/"), false),
        ('\'', Some('\\'), Some(escaped)) => (until(2 + escaped.len_utf8(), "'"), false),
        ('\'', Some(c), Some('\'')) => (2 + c.len_utf8(), false),
        ('\'', ..) => (word(1), false),
        ('"', ..) => {
            let mut escaped = false;
            let end = text[1..].find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            (end.map_or(text.len(), |at| at + 2), false)
        }
        (c, ..) if c.is_ascii_digit() => (word(0), false),
        (c, ..) if c.is_alphabetic() || c == '_' => {
            let end = word(0);
            let hashes = text[end..].len() - text[end..].trim_start_matches('#').len();
            if matches!(&text[..end], "r" | "br" | "cr") && text[end + hashes..].starts_with('"') {
                return (until(end + hashes + 1, &format!("\"{}", "#".repeat(hashes))), false);
            }
            (end, true)
        }
        (c, ..) => (c.len_utf8(), false),
    }
}

/// Banned identifiers in one source file: where, and what to say instead.
fn banned_identifiers(shown: &str, text: &str, table: &[Vec<String>]) -> Vec<String> {
    let is_under =
        |prefix: &str| shown.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']));
    let banned: BTreeMap<&str, &str> = table
        .iter()
        .filter(|row| !row.get(2).is_some_and(|prefixes| prefixes.split('`').any(is_under)))
        .map(|row| (row[0].trim_matches('`'), &*row[1]))
        .collect();
    let (mut rest, mut line, mut found) = (text, 1, Vec::new());
    while !rest.is_empty() {
        let (length, is_identifier) = token(rest);
        let (taken, later) = rest.split_at(length);
        if let Some(instead) = banned.get(taken).filter(|_| is_identifier) {
            found.push(format!("{shown}:{line}: `{taken}`, say {instead}"));
        }
        line += taken.matches('\n').count();
        rest = later;
    }
    found
}

/// A document without its code, in lower case and on one line.
fn prose(text: &str) -> String {
    let outside = text.split("```").step_by(2).collect::<Vec<_>>().join(" ");
    let outside = outside.split('`').step_by(2).collect::<Vec<_>>().join(" ` ");
    outside.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Banned phrases in one document, with what stands around them.
fn banned_phrases(shown: &str, text: &str, table: &[Vec<String>]) -> Vec<String> {
    let prose = prose(text);
    let mut found = Vec::new();
    for row in table {
        let phrase = row[0].to_lowercase();
        for (at, _) in prose.match_indices(&phrase) {
            let (before, after) = (&prose[..at], &prose[at + phrase.len()..]);
            if !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric) {
                let around: String = before.chars().rev().take(40).collect::<Vec<_>>().into_iter().rev().collect();
                found.push(format!("{shown}: \u{2026}{around}{phrase}, say {}", row[1]));
            }
        }
    }
    found
}

/// One concept has one name, and it is the one of docs/glossary.md.
#[test]
fn banned_names_of_the_glossary_are_not_used() {
    let (identifiers, phrases) = (glossary("Banned identifiers"), glossary("Banned phrases"));
    assert!(identifiers.len() > 100 && phrases.len() > 20, "the tables are read");

    let planted = "// Villain\nfn f<'a>() -> char { _ = (\"Villain\", r#\"Villain\"#, 'V'); '\"' }\nstruct Villain;\n";
    assert_eq!(banned_identifiers("lab/src/planted.rs", planted, &identifiers).len(), 1);
    let planted =
        "A broker `stands still`.\n```\nIt stands still.\n```\nThe order stands\nstill, and outstands stillness.";
    assert_eq!(banned_phrases("docs/planted.md", planted, &phrases).len(), 1);

    let folders: BTreeSet<String> = metadata()
        .workspace_packages()
        .into_iter()
        .filter_map(|it| it.manifest_path.strip_prefix(root().to_str()?).ok()?.iter().next().map(str::to_owned))
        .collect();
    assert!(folders.len() > 10, "the workspace has crates: {folders:?}");
    let mut found = Vec::new();
    for (path, text) in folders.iter().flat_map(|it| sources(it)) {
        let shown = path.strip_prefix(root()).expect("under the root").display().to_string();
        found.extend(banned_identifiers(&shown, &text, &identifiers));
    }
    let docs = fs::read_dir(root().join("docs")).expect("the documents are readable");
    let docs = docs.map(|it| it.expect("the documents are readable").path()).filter(|path| {
        path.extension().is_some_and(|it| it == "md") && !path.ends_with("glossary.md") && !path.ends_with("WIRE.md")
    });
    let others = ["README.md", "SECURITY.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|it| root().join(it));
    for path in docs.chain(others) {
        let text = fs::read_to_string(&path).expect("documents are UTF-8");
        let shown = path.strip_prefix(root()).expect("under the root").display().to_string();
        found.extend(banned_phrases(&shown, &text, &phrases));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
