//! Files that are not read at all, by their path: what they are for is to hold secrets.
//!
//! Patterns begin with `**/etc` and not `/etc`, so that the same file below another root (a container, a chroot, a backup, a
//! process' view in `/proc/1/root`) is meant too. Copies that editors, packages and people leave (`id_rsa.bak`, `shadow-`,
//! `server.key~`) count as the file itself.

use std::sync::LazyLock;

use super::globs::Globs;

/// Pattern and reason.
const PATHS: &[(&str, &str)] = &[
    ("**/etc/{shadow,gshadow}{,-,[-.]*}", "password-hashes"),
    ("**/{backups,backup}/{shadow,gshadow}*", "password-hashes"),
    ("**/security/opasswd*", "password-hashes"),
    ("**/etc/{master.passwd,spwd.db,tcb/**}", "password-hashes"),
    ("**/{.htpasswd,htpasswd,.htdigest,htdigest}*", "password-hashes"),
    ("**/{.google_authenticator,.yubico/challenge-*,.otp,users.oath}", "private-key"),
    ("**/.ssh/{id_*,identity,*.pem,*_rsa,*_ed25519,*_ecdsa,*_dsa}", "private-key"),
    ("**/ssh_host_*_key", "private-key"),
    (
        "**/*.{key,p12,pfx,p8,pvk,jks,jceks,keystore,bcfks,kdb,kdbx,ppk,ovpn,keytab,keyring,tkey,agekey}",
        "private-key",
    ),
    ("**/{privkey,key,server-key,client-key,ca-key,tls-key,private}*.pem", "private-key"),
    ("**/*[-_.]{key,privkey}.pem", "private-key"),
    ("**/ssl/private/**", "private-key"),
    ("**/pki/{private,tls/private}/**", "private-key"),
    ("**/letsencrypt/{archive,live,keys,accounts}/**/{priv,private_}*", "private-key"),
    ("**/letsencrypt/keys/**", "private-key"),
    ("**/etc/haproxy/**/*.pem", "private-key"),
    ("**/etc/{wireguard,amnezia}/**", "private-key"),
    ("**/{.gnupg,private-keys-v1.d}/**", "private-key"),
    ("**/{krb5.keytab,*.keytab}*", "private-key"),
    ("**/etc/ipsec.d/private/**", "private-key"),
    ("**/{swanctl,strongswan}/{private,rsa,ecdsa,pkcs8,pkcs12}/**", "private-key"),
    ("**/{rndc.key,bind.key,session.key,ddns.key,tsig.key}", "private-key"),
    ("**/dkim/**/{*.private,default.private}", "private-key"),
    ("**/{opendkim,dkim}/keys/**", "private-key"),
    ("**/.{pgpass,my.cnf,mylogin.cnf,netrc,git-credentials,dockercfg,fetchmailrc,s3cfg,boto}", "credentials"),
    ("**/{_netrc,pgpass.conf,debian.cnf}", "credentials"),
    ("**/.{docker,podman}/config.json", "credentials"),
    ("**/{containers,podman}/auth.json", "credentials"),
    ("**/.{kube,azure,oci,chef,terraform.d}/**", "credentials"),
    ("**/etc/kubernetes/{*.conf,pki/**,bootstrap*}", "credentials"),
    ("**/etc/rancher/**/*.y{a,}ml", "credentials"),
    ("**/kubeconfig*", "credentials"),
    ("**/.aws/{credentials,sso/**,cli/cache/**}", "credentials"),
    ("**/gcloud/**", "credentials"),
    ("**/application_default_credentials.json", "credentials"),
    ("**/{.config/gh,.config/hub,.config/glab-cli,.config/rclone,.config/doctl}/**", "credentials"),
    ("**/etc/ppp/*-secrets", "credentials"),
    ("**/{ipsec.secrets,ipsec.*.secrets,rsyncd.secrets,racoon/psk.txt,l2tp-secrets}", "credentials"),
    ("**/*.secrets", "credentials"),
    ("**/wpa_supplicant/**", "credentials"),
    ("**/NetworkManager/system-connections/**", "credentials"),
    ("**/netplan/*wifi*", "credentials"),
    ("**/etc/iwd/**", "credentials"),
    ("**/var/lib/iwd/**", "credentials"),
    ("**/etc/sssd/**", "credentials"),
    ("**/{pam_radius_auth.conf,raddb/server}", "credentials"),
    ("**/{pam_ldap,libnss-ldap,ldap}.secret", "credentials"),
    ("**/{sasl_passwd,sasl/passwd,sasl_password,saslpasswd,sasldb2,passwd.client,smtp_auth}*", "credentials"),
    ("**/etc/{dovecot,courier,exim4,postfix}/{passwd,users,userdb,sasl_passwd}*", "credentials"),
    ("**/etc/{pgbouncer,odyssey}/userlist.txt", "credentials"),
    ("**/{jmxremote.password,jmxremote.passwd,management/*.password}", "credentials"),
    ("**/.smb{credentials,cred,passwd}*", "credentials"),
    (
        "**/{smbcredentials,smb-credentials,smb.credentials,cifs-credentials,smbpasswd,passdb.tdb,secrets.tdb}*",
        "credentials",
    ),
    ("**/.{credentials,creds,smbcreds}*", "credentials"),
    ("**/etc/{samba,cifs}/{credentials,creds}*", "credentials"),
    (
        "**/{.erlang.cookie,.vault-token,vault-token,.vault_pass,.vault_password,.vault-pass*,vault_pass*.txt}",
        "token",
    ),
    ("**/{.npmrc,.yarnrc.yml,.pypirc,.gem/credentials,.cargo/credentials*,.composer/auth.json}", "token"),
    (
        "**/{.terraformrc,terraform.rc,.databrickscfg,.tugboat,.heroku,.remarkjs,.snowflake/config.toml}",
        "token",
    ),
    ("**/{.msmtprc,.esmtprc,.mutt/passwords,.ftpconfig,.remote-sync.json,sftp-config.json}", "credentials"),
    ("**/{filezilla.xml,sitemanager.xml,recentservers.xml,robomongo.json,proftpdpasswd}", "credentials"),
    ("**/.m2/settings-security.xml", "credentials"),
    ("**/.config/{op,sops,age,Bitwarden*,configstore}/**", "credentials"),
    ("**/.config/hub", "credentials"),
    (
        "**/{logins.json,key3.db,key4.db,signons.sqlite,cookies.sqlite,Login Data,pwdfile.txt,pin.txt}",
        "credentials",
    ),
    ("**/etc/apt/auth.conf{,.d/**}", "credentials"),
    ("**/etc/duo/*_duo.conf", "credentials"),
    ("**/kubelet/{pki/**,kubeconfig,config.json}", "credentials"),
    ("**/rancher/**/{token,node-token,agent-token,passwd}", "token"),
    ("**/{tailscaled.state,cloudflared/*.json,cloudflared/cert.pem}", "private-key"),
    ("**/private_keys/**", "private-key"),
    ("**/{salt,saltstack}/pki/**/*.pem", "private-key"),
    ("**/*_secret_key", "private-key"),
    ("**/*.{priv,private,psk,wpa_psk}", "private-key"),
    ("**/{cryptsetup-keys.d,luks-keys,luks}/**", "private-key"),
    ("**/crypto_keyfile.bin", "private-key"),
    ("**/{ntp,chrony}.keys", "private-key"),
    ("**/etc/{ha.d,heartbeat}/authkeys", "private-key"),
    ("**/{krb5kdc,heimdal-kdc}/**", "private-key"),
    ("**/.secret{,s}", "credentials"),
    ("**/*.htpasswd", "password-hashes"),
    // Whoever knows it knows what services derive from it; see machine-id(5).
    ("**/{etc,dbus}/machine-id", "machine-id"),
    ("**/{mongodb,mongo}{-,_,.}key{file,}*", "private-key"),
    ("**/{mongodb,mongo,mongod}/{keyfile,key}*", "private-key"),
    ("**/corosync/authkey*", "private-key"),
    ("**/{pacemaker,booth}/authkey*", "private-key"),
    ("**/munge/munge.key*", "private-key"),
    ("**/ceph/*.{keyring,secret}", "private-key"),
    ("**/ceph.client.*.secret", "private-key"),
    ("**/{elasticsearch,opensearch,kibana,logstash}/*.keystore", "private-key"),
    ("**/.env{,.*,-*,_*}", "environment"),
    ("**/*.env", "environment"),
    ("**/etc/environment.d/*{secret,password,token,credential}*", "environment"),
    (
        "**/{secrets,secret,vault,credentials}.{yml,yaml,json,toml,ini,conf,cfg,properties,env,txt,xml,enc,php,py,rb}",
        "credentials",
    ),
    ("**/*{-,_,.}secrets.y{a,}ml", "credentials"),
    ("**/{secrets,.secrets,.secret}/**", "credentials"),
    ("**/credstore{,.encrypted}/**", "credentials"),
    ("**/{.password-store,.vault,keyrings/login.keyring,Keychains}/**", "credentials"),
    ("**/{passwords,passwd,pwd,password}.{txt,csv,db,lst}", "credentials"),
    ("**/{master.key,credentials.yml.enc,secret_key,secret.key,secret_key_base}", "private-key"),
    ("**/{jenkins,.jenkins}*/{credentials.xml,secret.key*,secrets/**}", "credentials"),
    ("**/gitlab-secrets.json", "credentials"),
    ("**/terraform.tfstate*", "credentials"),
    ("**/*.tfstate{,.backup}", "credentials"),
    ("**/{secrets,secret}.auto.tfvars*", "credentials"),
    ("**/run/secrets/**", "credentials"),
    ("**/run/credentials/**", "credentials"),
    ("**/var/run/secrets/**", "credentials"),
    ("**/{service-account,service_account,serviceaccount}*.json", "credentials"),
    ("**/var/lib/cloud/**/{user-data,vendor-data}*", "credentials"),
    ("**/{unattend,autounattend,sysprep}.xml", "credentials"),
    (
        "**/.{bash,zsh,sh,ksh,ash,fish,python,mysql,psql,sqlite,rediscli,dbshell,node_repl,irb,lesshst}{_,}history*",
        "history",
    ),
    ("**/*history", "history"),
    ("**/.{lesshst,viminfo,wget-hsts}", "history"),
    ("/proc/**/environ", "environment"),
    ("/proc/**/{mem,auxv,maps,smaps,stack,syscall,fd/**,map_files/**,root/proc/**}", "memory"),
    ("/proc/{kcore,kmem,keys,key-users,kallsyms,kmsg,sysrq-trigger}", "memory"),
    ("/dev/**", "memory"),
    ("/sys/kernel/{security,debug,tracing}/**", "memory"),
    ("/sys/firmware/efi/efivars/**", "memory"),
    ("**/var/lib/systemd/{random-seed,credential.secret}", "private-key"),
    ("**/var/lib/private/**/{key,secret,token}*", "credentials"),
];

/// Paths that look like the above and hold nothing secret.
const HARMLESS: &[&str] = &[
    "**/*.pub",
    "**/*.{crt,cer,csr}",
    "**/{usr/share/keyrings,etc/apt/keyrings,etc/apt/trusted.gpg.d}/**",
    "**/.env.{example,sample,template,dist}",
    "**/usr/share/{bash-completion,doc,man,zsh}/**",
];

/// What editors, packages and people append to the name of a copy.
const COPIES: &[&str] = &[
    "~",
    "-",
    ".bak",
    ".backup",
    ".old",
    ".orig",
    ".save",
    ".saved",
    ".copy",
    ".new",
    ".tmp",
    ".swp",
    ".swo",
    ".rpmsave",
    ".rpmnew",
    ".rpmorig",
    ".dpkg-old",
    ".dpkg-new",
    ".dpkg-dist",
    ".dpkg-bak",
    ".dpkg-tmp",
    ".ucf-old",
    ".ucf-dist",
    ".0",
    ".1",
    ".2",
];

/// A test builds them; what no list can tell is withheld.
static DENIED: LazyLock<Option<Globs>> =
    LazyLock::new(|| Globs::new(PATHS.iter().map(|(path, _)| *path)).ok());
static ALLOWED: LazyLock<Option<Globs>> = LazyLock::new(|| Globs::new(HARMLESS.iter().copied()).ok());

/// Why a file may not be read; nothing where it may. The path as [`plain`] makes it.
pub(super) fn why(path: &str) -> Option<&'static str> {
    if let Some(why) = exactly(path) {
        return Some(why);
    }
    let name_at = path.rfind('/').map_or(0, |i| i + 1);
    let name = path.get(name_at..)?;
    let original = COPIES.iter().find_map(|suffix| name.strip_suffix(suffix)).filter(|n| !n.is_empty())?;
    // `.name.swp` is what vim writes beside `name`.
    let original = if name.ends_with(".swp") { original.trim_start_matches('.') } else { original };
    exactly(&format!("{}{original}", path.get(..name_at)?))
}

fn exactly(path: &str) -> Option<&'static str> {
    if ALLOWED.as_ref().is_some_and(|globs| globs.matches(path)) {
        return None;
    }
    let first = DENIED.as_ref().map_or(Some(0), |globs| globs.first(path))?;
    PATHS.get(first).map(|(_, why)| *why)
}

/// A path in lower case, without `//`, `/./` and `/../`.
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
        assert!(DENIED.is_some() && ALLOWED.is_some());
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

    /// What the lists of files of gitleaks, trufflehog, ggshield, detect-secrets and gitrob have, where it may lie on a server.
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
