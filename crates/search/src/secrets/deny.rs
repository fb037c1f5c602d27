//! Files that are never read, by their path, because their purpose is to hold secrets.
//!
//! Copies by editors, packages and people (`id_rsa.bak`, `shadow-`, `server.key~`) are treated like
//! the file itself.

use std::sync::LazyLock;

use super::globs::Globs;
use super::words;

/// Each line has the reason and the pattern.
const PATHS: &str = include_str!("paths.txt");
/// Paths that match other patterns but contain no secrets.
const ALLOWED: &str = "allowed";

/// The patterns of some lines, with their reasons.
struct Paths {
    why: Vec<&'static str>,
    globs: Globs,
}

impl Paths {
    fn new(is_wanted: impl Fn(&str) -> bool) -> Option<Self> {
        let lines =
            PATHS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
        let (why, patterns): (Vec<_>, Vec<_>) =
            lines.filter(|(why, _)| is_wanted(why)).map(|(why, pattern)| (why, pattern.trim())).unzip();
        Some(Self { why, globs: Globs::new(patterns).ok()? })
    }
}

/// If the list does not compile, every file is withheld. A test makes sure that it does.
static DENIED: LazyLock<Option<Paths>> = LazyLock::new(|| Paths::new(|why| why != ALLOWED));
static HARMLESS: LazyLock<Option<Paths>> = LazyLock::new(|| Paths::new(|why| why == ALLOWED));
static COPIES: LazyLock<Vec<&str>> = LazyLock::new(|| words::list("copy"));

/// The reason why a file must not be read; `None` if it may. The path has to be normalized by
/// [`plain`].
pub(super) fn why(path: &str) -> Option<&'static str> {
    if let Some(why) = exactly(path) {
        return Some(why);
    }
    let name_at = path.rfind('/').map_or(0, |i| i + 1);
    let name = path.get(name_at..)?;
    let original = COPIES.iter().find_map(|suffix| name.strip_suffix(suffix)).filter(|n| !n.is_empty())?;
    // vim writes `.name.swp` for `name`.
    let original = if name.ends_with(".swp") { original.trim_start_matches('.') } else { original };
    exactly(&format!("{}{original}", path.get(..name_at)?))
}

fn exactly(path: &str) -> Option<&'static str> {
    if HARMLESS.as_ref().is_some_and(|paths| paths.globs.matches(path)) {
        return None;
    }
    let Some(denied) = &*DENIED else { return Some("credentials") };
    denied.why.get(denied.globs.first(path)?).copied()
}

/// Normalizes a path: lower case, without `//`, `/./` and `/../`.
pub(super) fn plain(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", names.join("/")).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_patterns() {
        let (denied, harmless) = (DENIED.as_ref().unwrap(), HARMLESS.as_ref().unwrap());
        assert!(denied.why.len() > 100 && harmless.why.len() > 3);
    }

    fn denied(path: &str) -> bool {
        why(&plain(path)).is_some()
    }

    #[test]
    fn files_for_secrets_are_denied_wherever_they_lie() {
        for path in [
            "/etc/shadow",
            "/etc/shadow-",
            "/etc//gshadow",
            "/etc/./security/../shadow",
            "/etc/shadow.bak",
            "/var/backups/shadow.bak",
            "/proc/1/root/etc/shadow",
            "/var/lib/machines/web/etc/shadow",
            "/root/.ssh/id_ed25519",
            "/root/.ssh/id_rsa.old",
            "/etc/ssh/ssh_host_rsa_key",
            "/etc/nginx/tls/site.KEY",
            "/etc/nginx/tls/.site.key.swp",
            "/etc/ssl/private/snakeoil",
            "/etc/letsencrypt/live/example.org/privkey.pem",
            "/etc/letsencrypt/archive/example.org/privkey3.pem",
            "/home/u/.pgpass",
            "/home/u/.kube/config",
            "/home/u/.kube/cache/x",
            "/srv/app/.env",
            "/srv/app/.env.production",
            "/etc/wireguard/wg0.conf",
            "/etc/ppp/chap-secrets",
            "/etc/NetworkManager/system-connections/home.nmconnection",
            "/proc/4711/environ",
            "/proc/1/task/1/environ",
            "/root/.bash_history",
            "/etc/mitra/token",
            "/etc/mitra/webhooks/slack",
            "/etc/mitra/mitra.toml.bak",
            "/etc/mitra/client.key",
            "/etc/mitra/client-key.pem",
            "/etc/mitra-tls/..data/token",
            "/srv/root/etc/mitra-credentials/otel-token",
            "/home/u/.aws/credentials",
            "/etc/krb5.keytab",
            "/var/lib/rabbitmq/.erlang.cookie",
            "/etc/haproxy/certs/site.pem",
            "/run/secrets/db",
            "/etc/users.oath",
            "/etc/liboath/users.oath",
            "/home/u/.google_authenticator",
            "/home/u/.google_authenticator~",
            "/etc/machine-id",
            "/var/lib/dbus/machine-id",
            "/srv/root/etc/machine-id",
        ] {
            assert!(denied(path), "{path}");
        }
    }

    /// The file lists of gitleaks, trufflehog, ggshield, detect-secrets and gitrob, as far as the
    /// files may exist on a server.
    #[test]
    fn what_scanners_look_for_is_denied() {
        for path in [
            "/root/.netrc",
            "/root/_netrc",
            "/root/.pgpass",
            "/root/.my.cnf",
            "/root/.mylogin.cnf",
            "/root/.docker/config.json",
            "/root/.dockercfg",
            "/root/.kube/config",
            "/etc/kubernetes/admin.conf",
            "/etc/kubernetes/pki/ca.key",
            "/var/lib/kubelet/pki/kubelet-client-current.pem",
            "/root/.config/gcloud/credentials.db",
            "/root/.azure/accessTokens.json",
            "/root/.npmrc",
            "/root/.pypirc",
            "/root/.gem/credentials",
            "/root/.cargo/credentials.toml",
            "/root/.git-credentials",
            "/root/.vault-token",
            "/root/.terraformrc",
            "/srv/infra/terraform.tfstate",
            "/srv/infra/prod.tfstate.backup",
            "/home/u/passwords.kdbx",
            "/etc/tomcat9/keystore.jks",
            "/etc/ssl/site.p12",
            "/etc/ssl/site.pfx",
            "/etc/apache2/http.keytab",
            "/etc/ipsec.secrets",
            "/etc/ppp/pap-secrets",
            "/etc/wpa_supplicant/wpa_supplicant.conf",
            "/etc/sssd/sssd.conf",
            "/etc/ldap.secret",
            "/etc/pam_ldap.secret",
            "/etc/libnss-ldap.secret",
            "/var/lib/app/.secret",
            "/etc/nginx/site.htpasswd",
            "/etc/nginx/.htpasswd",
            "/etc/bind/rndc.key",
            "/etc/bind/tsig.key",
            "/etc/bind/keys/Kexample.org.+013+12345.private",
            "/etc/letsencrypt/accounts/acme-v02/directory/1/private_key.json",
            "/etc/apt/auth.conf.d/90.conf",
            "/root/.s3cfg",
            "/root/.boto",
            "/root/.msmtprc",
            "/root/.ftpconfig",
            "/root/.config/filezilla/sitemanager.xml",
            "/root/.config/hub",
            "/root/.config/sops/age/keys.txt",
            "/etc/puppetlabs/puppet/ssl/private_keys/web1.pem",
            "/etc/salt/pki/minion/minion.pem",
            "/var/lib/tor/service/hs_ed25519_secret_key",
            "/etc/cryptsetup-keys.d/data.key",
            "/etc/chrony.keys",
            "/etc/ntp.keys",
            "/var/lib/krb5kdc/principal",
            "/var/kerberos/krb5kdc/.k5.EXAMPLE.ORG",
            "/etc/zabbix/agent.psk",
            "/etc/hostapd.wpa_psk",
            "/var/lib/tailscale/tailscaled.state",
            "/etc/duo/login_duo.conf",
            "/var/lib/rancher/k3s/server/node-token",
            "/home/u/.mozilla/firefox/x/logins.json",
            "/home/u/.mozilla/firefox/x/key4.db",
            "/etc/httpd/alias/pwdfile.txt",
            "/root/.psql_history",
        ] {
            assert!(denied(path), "{path}");
        }
    }

    #[test]
    fn ordinary_files_are_not() {
        for path in [
            "/etc/passwd",
            "/etc/group",
            "/etc/hosts",
            "/etc/fstab",
            "/etc/sudoers.d/admins",
            "/etc/ssh/sshd_config",
            "/etc/ssh/ssh_host_rsa_key.pub",
            "/root/.ssh/id_rsa.pub",
            "/root/.ssh/authorized_keys",
            "/root/.ssh/known_hosts",
            "/root/.ssh/config",
            "/etc/ssl/certs/ca-certificates.crt",
            "/etc/ssl/openssl.cnf",
            "/etc/letsencrypt/live/example.org/fullchain.pem",
            "/etc/letsencrypt/renewal/example.org.conf",
            "/etc/mysql/my.cnf",
            "/etc/default/keyboard",
            "/etc/apt/keyrings/docker.gpg",
            "/usr/share/keyrings/debian-archive-keyring.gpg",
            "/etc/environment",
            "/etc/environment.d/90path.conf",
            "/proc/meminfo",
            "/proc/cmdline",
            "/proc/sys/kernel/keys/maxkeys",
            "/etc/pam.d/passwd",
            "/etc/security/limits.conf",
            "/srv/app/.env.example",
            "/etc/cron.d/sysstat",
            "/etc/haproxy/haproxy.cfg",
            "/etc/systemd/system/vault.service",
            "/etc/mitra/mitra.toml",
            "/etc/mitra/index.yaml",
            "/etc/mitra/ca.pem",
            "/etc/mitra/client.pem",
            "/etc/mitra-tls/..data/tls.crt",
            "/etc/mitra-credentials/..data/ca.pem",
            "/etc/mitrachain/token",
        ] {
            assert!(!denied(path), "{path}: {:?}", why(&plain(path)));
        }
    }

    #[test]
    fn paths_are_made_plain() {
        assert_eq!(plain("/a//b/./c/../D"), "/a/b/d");
        assert_eq!(plain("/../.."), "/");
        assert_eq!(plain("a/b/"), "a/b");
    }
}
