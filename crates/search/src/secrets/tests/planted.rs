//! Configuration files of real software, each with one secret that must be withheld. `§` and a
//! letter stand for a value that the test generates, see `made_up.rs`.

use super::Planted;

const fn file(name: &'static str, path: &'static str, text: &'static str) -> Planted {
    Planted { name, path, text }
}

/// Kinds of files below `/etc`.
pub(super) const SYSTEM: &[Planted] = &[
    file("shadow", "/etc/shadow", "root:$y$j9T$§S$§C:19000:0:99999:7:::\nbin:*:19000:0:99999:7:::\n"),
    file(
        "shadow elsewhere",
        "/srv/copy.txt",
        "root:x:0\nme:$6$§S$§C:19000:0:99999:7:::\nbin:*:19000:0:99999:7:::\n",
    ),
    file("gshadow", "/etc/gshadow", "adm:$6$§S$§C::me\nwheel:!::\n"),
    file("opasswd", "/etc/security/opasswd", "me:1000:2:$6$§S$§C\n"),
    file(
        "ssh host key",
        "/etc/ssh/ssh_host_ed25519_key",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n§L\n-----END OPENSSH PRIVATE KEY-----\n",
    ),
    file(
        "private key elsewhere",
        "/opt/app/conf/tls.txt",
        "# our key\n-----BEGIN RSA PRIVATE KEY-----\n§L\n-----END RSA PRIVATE KEY-----\n",
    ),
    file("keytab", "/etc/krb5.keytab", "\u{5}\u{2}host/web1 §B\n"),
    file(
        "wireguard key",
        "/srv/vpn/wg0.conf",
        "[Interface]\nAddress = 10.0.0.1/24\nListenPort = 51820\nPrivateKey = §B\n\n[Peer]\nPublicKey = K8dJz1sEpTXv0RxjWWlQ3cJ7QmJXo1nXyT6bBqgVfEQ=\nAllowedIPs = 10.0.0.2/32\n",
    ),
    file(
        "wireguard preshared",
        "/srv/vpn/wg1.conf",
        "[Peer]\nPublicKey = K8dJz1sEpTXv0RxjWWlQ3cJ7QmJXo1nXyT6bBqgVfEQ=\nPresharedKey = §B\nPersistentKeepalive = 25\n",
    ),
    file("chap-secrets", "/etc/ppp/chap-secrets", "# client server secret ip\nme * §W *\n"),
    file("ipsec.secrets", "/etc/ipsec.secrets", "# comment\n10.0.0.1 10.0.0.2 : PSK \"§P\"\n"),
    file(
        "wpa_supplicant",
        "/etc/wifi/wlan0.conf",
        "ctrl_interface=/run/wpa_supplicant\nnetwork={\n\tssid=\"home\"\n\tpsk=\"§P\"\n\tkey_mgmt=WPA-PSK\n}\n",
    ),
    file(
        "networkmanager psk",
        "/srv/home.nmconnection",
        "[connection]\nid=home\ntype=wifi\n\n[wifi-security]\nauth-alg=open\nkey-mgmt=wpa-psk\npsk=§P\n",
    ),
    file(
        "802.1x",
        "/srv/work.nmconnection",
        "[802-1x]\neap=tls;\nidentity=me\nprivate-key=/etc/ssl/me.pem\nprivate-key-password=§P\n",
    ),
    file(
        "snmpd community",
        "/etc/snmp/snmpd.conf",
        "agentaddress 127.0.0.1\nrocommunity §W 10.0.0.0/8\nsysLocation here\n",
    ),
    file("snmpd user", "/var/lib/snmp/snmpd.conf", "createUser me SHA \"§P\" AES\nrouser me\n"),
    file(
        "sssd",
        "/etc/sssd/sssd.conf",
        "[domain/x]\nid_provider = ldap\nldap_default_authtok_type = password\nldap_default_authtok = §P\n",
    ),
    file(
        "sssd elsewhere",
        "/srv/old/domain.cfg",
        "[domain/x]\nid_provider = ldap\nldap_default_authtok_type = password\nldap_default_authtok = §P\n",
    ),
    file(
        "nslcd",
        "/etc/nslcd.conf",
        "uri ldap://127.0.0.1/\nbase dc=example,dc=net\nbinddn cn=a,dc=example,dc=net\nbindpw §W\nssl off\n",
    ),
    file("pam_ldap.secret", "/etc/pam_ldap.secret", "§W\n"),
    // The secrets of Mitra itself, bare and under the names that its documentation gives them.
    file("mitra: password", "/etc/mitra/password", "§P\n"),
    file("mitra: token", "/etc/mitra/token", "§P\n"),
    file("mitra: prometheus token", "/etc/mitra/prometheus-token", "§P\n"),
    file("mitra: otel token", "/etc/mitra/otel-token", "§P\n"),
    file("mitra: clickhouse password", "/etc/mitra/clickhouse-password", "§P\n"),
    file("mitra: influx password", "/etc/mitra/influx-password", "§P\n"),
    file("mitra: pagerduty key", "/etc/mitra/pagerduty-routing-key", "§P\n"),
    file("mitra: hooks key", "/etc/mitra/hooks-key", "§P\n"),
    file("mitra: slack webhook", "/etc/mitra/slack-webhook", "https://hooks.example.org/§P\n"),
    file("mitra: teams webhook", "/etc/mitra/teams-webhook", "https://hooks.example.org/§P\n"),
    file("mitra: storage webhook", "/etc/mitra/storage-webhook", "https://hooks.example.org/§P\n"),
    file("mitra: server's token", "/etc/mitra-tls/token", "§P\n"),
    file("mitra: mounted token", "/etc/mitra-credentials/..data/otel-token", "§P\n"),
    file("mitra: s3 key", "/etc/mitra/s3-key", "§A:§C\n"),
    file(
        "fstab cifs",
        "/etc/fstab",
        "UUID=2f1c9b1e-5a0f-4e0e-9a53-0d6f6a1b2c3d / ext4 errors=remount-ro 0 1\n//nas/share /mnt cifs rw,username=me,password=§P,uid=1000 0 0\n",
    ),
    file("smb credentials", "/root/mount.cred", "username=me\npassword=§W\ndomain=WORK\n"),
    file("autofs", "/etc/auto.nas", "data -fstype=cifs,rw,user=me,pass=§P ://nas/data\n"),
    file("rsyncd.secrets", "/etc/rsyncd.secrets", "backup:§W\n"),
    file(
        "iscsid",
        "/etc/iscsi/iscsid.conf",
        "node.startup = manual\nnode.session.auth.authmethod = CHAP\nnode.session.auth.username = me\nnode.session.auth.password = §W\n",
    ),
    file("ceph keyring", "/srv/ceph/admin.txt", "[client.admin]\n\tkey = §B\n\tcaps mds = \"allow *\"\n"),
    file(
        "drbd",
        "/etc/drbd.d/r0.res",
        "resource r0 {\n  net {\n    cram-hmac-alg sha1;\n    shared-secret \"§W\";\n  }\n}\n",
    ),
    file("corosync authkey", "/etc/corosync/authkey", "§B\n"),
    file(
        "keepalived",
        "/etc/keepalived/keepalived.conf",
        "vrrp_instance VI_1 {\n    state MASTER\n    authentication {\n        auth_type PASS\n        auth_pass §W\n    }\n}\n",
    ),
    file(
        "haproxy stats",
        "/etc/haproxy/haproxy.cfg",
        "listen stats\n    bind :9000\n    stats enable\n    stats auth admin:§P\n",
    ),
    file(
        "haproxy userlist",
        "/etc/haproxy/users.cfg",
        "userlist u\n    user me insecure-password §W\n    group g users me\n",
    ),
    file(
        "haproxy.pem",
        "/etc/haproxy/haproxy.pem",
        "-----BEGIN PRIVATE KEY-----\n§L\n-----END PRIVATE KEY-----\n",
    ),
    file(
        "nginx header",
        "/etc/nginx/conf.d/api.conf",
        "location / {\n    proxy_pass http://10.0.0.5:8080;\n    proxy_set_header Authorization \"Basic §U\";\n}\n",
    ),
    file("htpasswd", "/srv/www/users.txt", "# users\nme:$apr1$§S$§H\n"),
    file(
        "apache ldap",
        "/etc/apache2/sites-available/ldap.conf",
        "<Location />\n    AuthType Basic\n    AuthLDAPURL ldap://ldap.example.org/\n    AuthLDAPBindDN cn=web\n    AuthLDAPBindPassword \"§P\"\n</Location>\n",
    ),
    file(
        "php-fpm",
        "/etc/php/8.2/fpm/pool.d/www.conf",
        "[www]\nuser = www-data\nenv[DB_HOST] = db\nenv[DB_PASS] = §P\npm = dynamic\n",
    ),
    file(
        "php.ini redis",
        "/etc/php/8.2/php.ini",
        "session.save_handler = redis\nsession.save_path = \"tcp://127.0.0.1:6379?auth=§P\"\nsession.name = PHPSESSID\n",
    ),
    file(
        "tomcat-users",
        "/etc/tomcat9/tomcat-users.xml",
        "<tomcat-users>\n  <role rolename=\"manager-gui\"/>\n  <user username=\"tomcat\" password=\"§W\" roles=\"manager-gui\"/>\n</tomcat-users>\n",
    ),
    file(
        "tomcat keystore",
        "/etc/tomcat9/server.xml",
        "<Server port=\"8005\">\n  <Connector port=\"8443\" keystoreFile=\"/etc/x.jks\" keystorePass=\"§W\"/>\n</Server>\n",
    ),
    file(
        "wildfly",
        "/opt/wildfly/standalone.xml",
        "<security>\n  <user-name>sa</user-name>\n  <credential-reference clear-text=\"§P\"/>\n</security>\n",
    ),
    file(
        "wildfly datasource",
        "/opt/wildfly/ds.xml",
        "<security>\n  <user-name>sa</user-name>\n  <password>§W</password>\n</security>\n",
    ),
];

/// Databases and queues.
pub(super) const DATABASES: &[Planted] = &[
    file(
        "my.cnf",
        "/etc/mysql/conf.d/client.cnf",
        "[client]\nuser = root\npassword = \"§P\"\nsocket = /run/mysqld/mysqld.sock\n",
    ),
    file(
        "debian.cnf",
        "/etc/mysql/debian.cnf",
        "[client]\nhost = localhost\nuser = debian-sys-maint\npassword = §P\n",
    ),
    file("pgpass", "/var/lib/postgresql/.pgpass", "*:*:*:postgres:§W\n"),
    file("pgbouncer userlist", "/etc/pgbouncer/userlist.txt", "\"me\" \"§W\"\n"),
    file("pgbouncer md5", "/srv/pool/users.txt", "\"me\" \"md5§H\"\n"),
    file(
        "primary_conninfo",
        "/var/lib/postgresql/15/main/postgresql.auto.conf",
        "wal_level = replica\nprimary_conninfo = 'user=rep password=§P host=10.0.0.1 port=5432'\n",
    ),
    file(
        "redis requirepass",
        "/etc/redis/redis.conf",
        "bind 127.0.0.1\nport 6379\nrequirepass §W\nmaxmemory 1gb\n",
    ),
    file(
        "redis renamed command",
        "/etc/redis/cache.conf",
        "port 6379\nrename-command FLUSHALL \"\"\nrename-command CONFIG §W\nhz 10\n",
    ),
    file("redis acl", "/etc/redis/users.acl", "user default off\nuser me on >§W ~* +@all\n"),
    file("mongod keyfile", "/etc/mongodb/keyfile", "§B\n"),
    file(
        "mongodb url",
        "/srv/app/config.js",
        "module.exports = {\n  port: 3000,\n  db: 'mongodb://me:§P@db1:27017/app?replicaSet=rs0',\n};\n",
    ),
    file(
        "rabbitmq",
        "/etc/rabbitmq/rabbitmq.conf",
        "listeners.tcp.default = 5672\ndefault_user = me\ndefault_pass = §W\n",
    ),
    file(
        "rabbitmq classic",
        "/etc/rabbitmq/rabbitmq.config",
        "[{rabbit, [\n  {default_user, <<\"me\">>},\n  {default_pass, <<\"§P\">>}\n]}].\n",
    ),
    file("erlang cookie", "/var/lib/rabbitmq/.erlang.cookie", "§W\n"),
    file(
        "kafka jaas",
        "/etc/kafka/jaas.conf",
        "KafkaServer {\n  org.apache.kafka.common.security.plain.PlainLoginModule required\n  username=\"admin\"\n  password=\"§P\";\n};\n",
    ),
    file(
        "kafka inline jaas",
        "/etc/kafka/client.properties",
        "security.protocol=SASL_SSL\nsasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password=\"§W\";\n",
    ),
    file("jmxremote.password", "/etc/cassandra/jmxremote.password", "monitorRole §W\n"),
    file(
        "elasticsearch bootstrap",
        "/etc/elasticsearch/elasticsearch.yml",
        "cluster.name: x\nbootstrap.password: §W\nxpack.security.enabled: true\n",
    ),
    file(
        "influx token",
        "/etc/influxdb/influx-configs",
        "[default]\n  url = \"http://localhost:8086\"\n  token = \"§B\"\n  org = \"x\"\n",
    ),
    file("odbc", "/etc/odbc.ini", "[DB]\nDriver = FreeTDS\nServer = db\nUID = me\nPWD = §W\n"),
    file(
        "jdbc",
        "/srv/app/db.properties",
        "jdbc.driver=com.mysql.cj.jdbc.Driver\njdbc.url=jdbc:mysql://db:3306/x?user=me&password=§P&useSSL=true\n",
    ),
];

/// Mail and monitoring.
pub(super) const SERVICES: &[Planted] = &[
    file("postfix sasl", "/etc/postfix/sasl_passwd", "[smtp.example.org]:587 me:§W\n"),
    file(
        "dovecot sql",
        "/etc/dovecot/dovecot-sql.conf.ext",
        "driver = mysql\nconnect = host=localhost dbname=mail user=me password=§P\n",
    ),
    file("dovecot passdb", "/etc/dovecot/users", "me:{SHA512-CRYPT}$6$§S$§C:1000:1000::/home/me\n"),
    file("exim", "/etc/exim4/passwd.client", "*.example.org:me:§W\n"),
    file("msmtp", "/etc/msmtprc", "account default\nhost smtp.example.org\nuser me\npassword §W\n"),
    file(
        "grafana admin",
        "/etc/grafana/grafana.ini",
        "[security]\nadmin_user = admin\nadmin_password = §W\n;disable_gravatar = false\n",
    ),
    file(
        "grafana secret_key",
        "/etc/grafana/custom.ini",
        "[security]\nsecret_key = §P\ncookie_secure = true\n",
    ),
    file(
        "prometheus",
        "/etc/prometheus/web.yml",
        "scrape_configs:\n  - job_name: x\n    basic_auth:\n      username: me\n      password: §W\n",
    ),
    file("prometheus users", "/etc/prometheus/auth.yml", "basic_auth_users:\n    me: $2y$10$§C\n"),
    file(
        "alertmanager slack",
        "/etc/alertmanager/alertmanager.yml",
        "global:\n  resolve_timeout: 5m\n  slack_api_url: https://hooks.slack.com/services/T0/B0/§P\n",
    ),
    file(
        "pagerduty",
        "/etc/alertmanager/pd.yml",
        "receivers:\n  - name: pd\n    pagerduty_configs:\n      - routing_key: §H\n",
    ),
    file(
        "zabbix",
        "/etc/zabbix/zabbix_server.conf",
        "DBName=zabbix\nDBUser=zabbix\nDBPassword=§W\nTimeout=4\n",
    ),
    file("nagios", "/etc/nagios4/resource.cfg", "$USER1$=/usr/lib/nagios/plugins\n$USER3$=§W\n"),
    file(
        "telegraf",
        "/etc/telegraf/telegraf.conf",
        "[[outputs.influxdb_v2]]\n  urls = [\"http://127.0.0.1:8086\"]\n  token = \"§B\"\n",
    ),
    file("datadog", "/etc/datadog-agent/datadog.yaml", "site: datadoghq.com\napi_key: §H\nhostname: web1\n"),
    file("newrelic", "/etc/newrelic-infra.yml", "license_key: §K\ndisplay_name: web1\n"),
    file(
        "sentry",
        "/srv/app/sentry.cfg",
        "environment=production\ndsn=https://§H@o1.ingest.example.org/42\n",
    ),
    file(
        "logstash",
        "/etc/logstash/conf.d/out.conf",
        "output {\n  elasticsearch {\n    hosts => [\"es:9200\"]\n    user => \"me\"\n    password => \"§P\"\n  }\n}\n",
    ),
    file(
        "filebeat",
        "/etc/filebeat/filebeat.yml",
        "output.elasticsearch:\n  hosts: [\"es:9200\"]\n  username: \"me\"\n  password: \"§W\"\n",
    ),
    file(
        "bind key",
        "/etc/bind/named.conf.local",
        "key \"ddns\" {\n    algorithm hmac-sha256;\n    secret \"§B\";\n};\n",
    ),
    file(
        "slapd rootpw",
        "/etc/ldap/slapd.conf",
        "suffix \"dc=x\"\nrootdn \"cn=admin,dc=x\"\nrootpw {SSHA}§B\n",
    ),
    file(
        "openvpn management",
        "/etc/openvpn/auth.conf",
        "client\nremote vpn.example.org 1194\nauth-token §P\n",
    ),
    file(
        "freeradius",
        "/etc/freeradius/clients.conf",
        "client net {\n    ipaddr = 10.0.0.0/8\n    secret = §W\n}\n",
    ),
    file("squid", "/etc/squid/squid.conf", "http_port 3128\ncache_peer up parent 3128 0 login=me:§P\n"),
];

/// Deployment and clouds.
pub(super) const CLOUD: &[Planted] = &[
    file(
        "aws credentials",
        "/root/.aws/credentials",
        "[default]\naws_access_key_id = AKIA§A\naws_secret_access_key = x\n",
    ),
    file(
        "aws secret",
        "/srv/app/boto.cfg",
        "[Credentials]\naws_secret_access_key = §P§P\nregion = eu-central-1\n",
    ),
    file(
        "azure",
        "/srv/app/storage.cfg",
        "container=logs\nconnection=DefaultEndpointsProtocol=https;AccountName=x;AccountKey=§B;EndpointSuffix=core.windows.net\n",
    ),
    file(
        "gcp",
        "/srv/app/sa.json",
        "{\n  \"type\": \"service_account\",\n  \"private_key\": \"-----BEGIN PRIVATE KEY-----\\n§L\\n-----END PRIVATE KEY-----\\n\"\n}\n",
    ),
    file(
        "kubeconfig",
        "/srv/deploy/cluster.yaml",
        "apiVersion: v1\nkind: Config\nusers:\n- name: admin\n  user:\n    token: §P\n",
    ),
    file(
        "kubeconfig key",
        "/srv/deploy/admin.conf",
        "users:\n- name: admin\n  user:\n    client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo§B\n",
    ),
    file(
        "k8s secret",
        "/srv/deploy/secret.yaml.txt",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  login: §U\n",
    ),
    file(
        "docker auth",
        "/root/.docker/config.json",
        "{\"auths\": {\"r.example.org\": {\"auth\": \"§U\"}}}\n",
    ),
    file(
        "docker auth elsewhere",
        "/srv/ci/docker.json",
        "{\n  \"auths\": {\n    \"r.example.org\": {\n      \"auth\": \"§U\"\n    }\n  }\n}\n",
    ),
    file("tfvars", "/srv/infra/prod.tfvars", "region = \"eu\"\ndb_password = \"§P\"\ninstances = 3\n"),
    file("tfstate", "/srv/infra/terraform.tfstate", "{\"resources\": [{\"password\": \"§W\"}]}\n"),
    file("ansible vault", "/srv/play/group_vars/all.yml", "$ANSIBLE_VAULT;1.1;AES256\n§H\n"),
    file(
        "ansible become",
        "/srv/play/hosts.ini",
        "[web]\nweb1 ansible_user=me ansible_become_pass=§P ansible_port=22\n",
    ),
    file(
        "hiera",
        "/srv/puppet/common.yaml",
        "ntp::servers:\n  - 0.pool.ntp.org\nmysql::server::root_password: '§P'\n",
    ),
    file(
        "gitlab.rb",
        "/etc/gitlab/gitlab.rb",
        "external_url 'https://git.example.org'\ngitlab_rails['smtp_password'] = \"§P\"\n",
    ),
    file(
        "gitlab runner",
        "/etc/gitlab-runner/config.toml",
        "[[runners]]\n  name = \"r1\"\n  token = \"glrt-§P§P\"\n  executor = \"shell\"\n",
    ),
    file(
        "jenkins",
        "/srv/ci/creds.xml",
        "<c>\n  <username>me</username>\n  <password>{§B}</password>\n</c>\n",
    ),
    file(
        "npmrc",
        "/root/.npmrc",
        "registry=https://registry.npmjs.org/\n//registry.npmjs.org/:_authToken=npm_§P§P§P\n",
    ),
    file(
        "pip.conf",
        "/etc/pip.conf",
        "[global]\nindex-url = https://me:§P@pypi.example.org/simple\ntimeout = 30\n",
    ),
    file(
        "systemd environment",
        "/etc/systemd/system/app.service",
        "[Service]\nEnvironment=\"DB_HOST=db\" \"DB_PASSWORD=§P\"\nExecStart=/usr/bin/app\n",
    ),
    file(
        "systemd argument",
        "/etc/systemd/system/dump.service",
        "[Service]\nExecStart=/usr/bin/mysqldump -u root -p§W app\nNice=10\n",
    ),
    file(
        "crontab curl",
        "/etc/cron.d/ping",
        "MAILTO=root\n*/5 * * * * root curl -s -u me:§P https://x.example.org/ping\n",
    ),
    file(
        "crontab export",
        "/etc/cron.d/token",
        "MAILTO=root\n0 1 * * * root export TOKEN=§P; /usr/local/bin/sync\n",
    ),
    file(
        "compose",
        "/srv/app/compose.yml",
        "services:\n  db:\n    image: postgres\n    environment:\n      - POSTGRES_USER=me\n      - POSTGRES_PASSWORD=§W\n",
    ),
    file(
        "cloud-init",
        "/etc/cloud/cloud.cfg.d/99.cfg",
        "#cloud-config\nchpasswd:\n  list: |\n    root:$6$§S$§C\nssh_pwauth: true\n",
    ),
    file(
        "grub",
        "/etc/grub.d/40_custom",
        "set superusers=\"root\"\npassword_pbkdf2 root grub.pbkdf2.sha512.10000.§H§H\n",
    ),
    file(
        "vault token",
        "/srv/app/vault.hcl",
        "storage \"file\" {\n  path = \"/var/vault\"\n}\ntoken = \"hvs.§P§P\"\n",
    ),
    file(
        "git credentials",
        "/etc/gitconfig",
        "[url \"https://me:ghp_§P§P§P@github.com/\"]\n\tinsteadOf = https://github.com/\n",
    ),
    file(
        "django",
        "/srv/app/settings.py",
        "DEBUG = False\nSECRET_KEY = 'django-insecure-§P§P'\nALLOWED_HOSTS = []\n",
    ),
    file(
        "wordpress",
        "/srv/www/wp-config.php",
        "define('DB_USER', 'wp');\ndefine('DB_PASSWORD', '§P');\ndefine('DB_HOST', 'localhost');\n",
    ),
    file(
        "rails",
        "/srv/app/config/database.yml",
        "production:\n  adapter: postgresql\n  password: <%= ENV['X'] %>\nstaging:\n  password: §W\n",
    ),
    file("stripe", "/srv/app/pay.ini", "[pay]\nmode = live\nclient = sk_live_§P§P\n"),
    file(
        "borgmatic",
        "/etc/borgmatic/config.yaml",
        "storage:\n    encryption_passphrase: \"§P\"\n    compression: lz4\n",
    ),
    file("restic", "/etc/cron.daily/restic", "#!/bin/sh\nexport RESTIC_PASSWORD='§P'\nrestic backup /srv\n"),
];
