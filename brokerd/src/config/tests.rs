use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;

use sealcast_broker::cluster_file::{Addresses, Suite};
use sealcast_broker::genesis::Genesis;
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::identity::keytext::export_seed;

use super::*;

/// A broker's folder that goes when the test ends.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Home {
        let folder = std::env::temp_dir().join(format!("sealcast-config-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let genesis = Genesis {
            name: "test".into(),
            brokers: (1..=4).map(public).collect::<BTreeSet<_>>(),
            quorum: 1,
            administrators: vec![Key::new(&public(9)).unwrap()],
            issuers: BTreeMap::new(),
        };
        let at =
            |port: u16| Addresses { gateway: format!("127.0.0.1:{port}"), order: format!("127.0.0.1:{}", port + 10) };
        let addresses = (7400..7404).map(at).collect();
        let (threshold, suite) = (3, Suite::default());
        let file = ClusterFile { genesis, addresses, threshold, suite, key: None, endorsement: None };
        let home = Home(folder);
        home.write(CLUSTER, &file.to_text());
        home.write(KEY, &format!("{}\n", *export_seed(&Secret::from_bytes([2; 32]))));
        fs::set_permissions(home.0.join(KEY), fs::Permissions::from_mode(0o600)).unwrap();
        home
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    /// What is said of this folder, without the folder's name.
    fn wrong(&self) -> String {
        let wrong = Config::read(&self.0).map(drop).expect_err("it is wrong").to_string();
        wrong.replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn public(seed: u8) -> [u8; 32] {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32])).public_bytes()
}

#[test]
fn a_folder_says_who_and_where_the_broker_is() {
    let home = Home::new("good");
    let config = Config::read(&home.0).unwrap();
    let own = usize::from(config.index);
    assert_eq!(config.cluster.broker_keys()[own], public(2));
    assert_eq!(config.gateway.port(), 7400 + config.index);
    assert_eq!(config.listen_order, config.order[own]);
    assert_eq!((config.block(), config.threads(3)), (BlockSize::default(), 3));
    assert_eq!(config.settings, Settings::default());
    assert!(!format!("{config:?}").contains("SECRET"));
}

#[test]
fn settings_of_its_own_stand_in_a_file() {
    let home = Home::new("settings");
    home.write(SETTINGS, "listen-gateway = \"0.0.0.0:1\"\nshare-on = \"write\"\nblock-size = 16\nthreads = 4\n");
    let config = Config::read(&home.0).unwrap();
    assert_eq!(config.gateway.to_string(), "0.0.0.0:1");
    assert_eq!((config.settings.share_on, config.block().frames, config.threads(1)), (ShareOn::Write, 16, 4));
    drop(config);
    home.write(SETTINGS, "listen-gateway = \"0.0.0.0:1\"\nblocksize = 16\n");
    let wrong = home.wrong();
    assert!(wrong.starts_with("broker.toml: ") && wrong.contains("unknown field `blocksize`"), "{wrong}");
}

#[test]
fn what_is_wrong_with_a_folder_is_said_with_what_to_do() {
    let home = Home::new("wrong");
    fs::set_permissions(home.0.join(KEY), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(home.wrong(), "broker.key: others can read the broker's secret; chmod 600 broker.key");
    fs::set_permissions(home.0.join(KEY), fs::Permissions::from_mode(0o600)).unwrap();

    let good = fs::read_to_string(home.0.join(KEY)).unwrap();
    home.write(KEY, &good[..good.len() - 3]);
    assert!(home.wrong().ends_with("put the broker's own key file back"), "{}", home.wrong());
    home.write(KEY, &export_seed(&Secret::from_bytes([7; 32])));
    let wrong = home.wrong();
    assert!(
        wrong.contains("is not one of the brokers of «test»; compare the keys of [[broker]] in cluster.toml"),
        "{wrong}"
    );
    home.write(KEY, &good);

    let text = fs::read_to_string(home.0.join(CLUSTER)).unwrap();
    home.write(CLUSTER, &text.replace("name = \"test\"", "name = \"other\""));
    assert!(home.wrong().starts_with("cluster.toml: "), "another genesis has another id: {}", home.wrong());
    fs::remove_file(home.0.join(CLUSTER)).unwrap();
    assert_eq!(home.wrong(), "cluster.toml: there is no such file; «sealcast brokers init» makes one");
}

#[test]
fn two_brokers_do_not_run_in_one_folder() {
    let home = Home::new("twice");
    let first = Config::read(&home.0).unwrap();
    assert_eq!(home.wrong(), "lock: a broker runs in this folder already; stop it first, or name another folder");
    drop(first);
    Config::read(&home.0).unwrap();
}
