//! Default configuration files, almost unmodified, without secrets: whatever is withheld here is a
//! false positive. Most of them mention passwords, keys and tokens.

/// The name and the text.
pub(super) const FILES: &[(&str, &str)] = &[
    (
        "sshd_config",
        "Port 22\nListenAddress 0.0.0.0\nHostKey /etc/ssh/ssh_host_rsa_key\nHostKey /etc/ssh/ssh_host_ed25519_key\nSyslogFacility AUTH\nLoginGraceTime 2m\nPermitRootLogin prohibit-password\nStrictModes yes\nMaxAuthTries 6\nPubkeyAuthentication yes\nAuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys2\nPasswordAuthentication no\nPermitEmptyPasswords no\nKbdInteractiveAuthentication no\nUsePAM yes\nX11Forwarding yes\nKexAlgorithms curve25519-sha256,ecdh-sha2-nistp256\nCiphers chacha20-poly1305@openssh.com,aes256-gcm@openssh.com\nMACs hmac-sha2-512-etm@openssh.com,umac-128-etm@openssh.com\n",
    ),
    (
        "ssh_config",
        "Host *\n    ForwardAgent no\n    PasswordAuthentication yes\n    HostbasedAuthentication no\n    IdentityFile ~/.ssh/id_rsa\n    IdentityFile ~/.ssh/id_ed25519\n    SendEnv LANG LC_*\n    HashKnownHosts yes\n    PreferredAuthentications publickey,password\n",
    ),
    (
        "login.defs",
        "MAIL_DIR /var/mail\nFAILLOG_ENAB yes\nLOG_UNKFAIL_ENAB no\nPASS_MAX_DAYS 99999\nPASS_MIN_DAYS 0\nPASS_WARN_AGE 7\nUID_MIN 1000\nLOGIN_RETRIES 5\nLOGIN_TIMEOUT 60\nCHFN_RESTRICT rwh\nENCRYPT_METHOD SHA512\nSHA_CRYPT_MAX_ROUNDS 5000\n# If set to MD5, MD5-based algorithm will be used for encrypting password\n",
    ),
    (
        "pam common-password",
        "# here are the per-package modules (the \"Primary\" block)\npassword\t[success=1 default=ignore]\tpam_unix.so obscure yescrypt\npassword\trequisite\t\t\tpam_deny.so\npassword\trequired\t\t\tpam_permit.so\npassword optional pam_gnome_keyring.so use_authtok\n-password optional pam_gnome_keyring.so\n@include common-password\n",
    ),
    (
        "pam common-auth",
        "auth\t[success=2 default=ignore]\tpam_unix.so nullok try_first_pass\nauth\t[success=1 default=ignore]\tpam_sss.so use_first_pass\nauth\trequisite\tpam_deny.so\nauth required pam_env.so envfile=/etc/default/locale\nauth sufficient pam_u2f.so cue authfile=/etc/u2f_mappings\nsession optional pam_keyinit.so force revoke\n",
    ),
    (
        "nsswitch.conf",
        "passwd:         files systemd sss\ngroup:          files systemd\nshadow:         files\ngshadow:        files\nhosts:          files mdns4_minimal [NOTFOUND=return] dns\npublickey:      nis\nnetgroup:       nis\n",
    ),
    (
        "sudoers",
        "Defaults\tenv_reset\nDefaults\tmail_badpass\nDefaults\tsecure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin\"\nDefaults\tpasswd_tries=3, passprompt=\"Password for %p: \"\nDefaults\ttimestamp_timeout=15\nroot\tALL=(ALL:ALL) ALL\n%sudo\tALL=(ALL:ALL) NOPASSWD: ALL\n%admin ALL=(ALL) PASSWD: /usr/bin/passwd\n",
    ),
    (
        "pwquality.conf",
        "# Minimum acceptable size for the new password (plus\n# one if credits are not disabled).\nminlen = 8\ndcredit = 0\nretry = 3\nenforce_for_root\nusercheck = 1\nbadwords = password secret\n",
    ),
    (
        "redis.conf",
        "bind 127.0.0.1 -::1\nprotected-mode yes\nport 6379\ntimeout 0\ntcp-keepalive 300\n# IMPORTANT NOTE: starting with Redis 6 \"requirepass\" is just a compatibility\n# layer on top of the new ACL system. The option effect will be just setting\n# the password for the default user.\n# masterauth <master-password>\n# masteruser <username>\nmaxmemory-policy noeviction\nlazyfree-lazy-user-del no\nappendonly no\naclfile /etc/redis/users.acl\n# tls-key-file redis.key\n# tls-key-file-pass secret\n# rename-command CONFIG b840fc02d524045429941cc15f59e41cb7be6c52\nrename-command DEBUG \"\"\nhz 10\n",
    ),
    (
        "postgresql.conf",
        "listen_addresses = 'localhost'\nport = 5432\nmax_connections = 100\npassword_encryption = scram-sha-256\n#db_user_namespace = off\n#krb_server_keyfile = 'FILE:${sysconfdir}/krb5.keytab'\nssl = on\nssl_cert_file = '/etc/ssl/certs/ssl-cert-snakeoil.pem'\nssl_key_file = '/etc/ssl/private/ssl-cert-snakeoil.key'\n#ssl_passphrase_command = ''\n#ssl_passphrase_command_supports_reload = off\n#authentication_timeout = 1min\nshared_buffers = 128MB\nlog_line_prefix = '%m [%p] %q%u@%d '\n",
    ),
    (
        "pg_hba.conf",
        "local   all             postgres                                peer\nlocal   all             all                                     scram-sha-256\nhost    all             all             127.0.0.1/32            password\nhost    all             all             ::1/128                 md5\nhost    replication     all             0.0.0.0/0               cert clientcert=verify-full\n",
    ),
    (
        "my.cnf",
        "[mysqld]\nuser = mysql\npid-file = /run/mysqld/mysqld.pid\nbind-address = 127.0.0.1\nkey_buffer_size = 16M\nmax_allowed_packet = 16M\nssl-ca = /etc/mysql/cacert.pem\nssl-key = /etc/mysql/server-key.pem\nskip-name-resolve\ndefault_authentication_plugin = caching_sha2_password\nvalidate_password.policy = MEDIUM\ndefault_password_lifetime = 180\nold_passwords = 0\n",
    ),
    (
        "nginx.conf",
        "user www-data;\nworker_processes auto;\nhttp {\n    server_tokens off;\n    keepalive_timeout 65;\n    keepalive_requests 1000;\n    ssl_certificate /etc/ssl/certs/x.pem;\n    ssl_certificate_key /etc/ssl/private/x.key;\n    ssl_session_tickets off;\n    ssl_session_cache shared:SSL:10m;\n    auth_basic \"Restricted\";\n    auth_basic_user_file /etc/nginx/.htpasswd;\n    proxy_pass http://backend;\n    fastcgi_pass unix:/run/php/php8.2-fpm.sock;\n    proxy_set_header Authorization $http_authorization;\n    proxy_set_header X-Token $http_x_token;\n    limit_req_zone $binary_remote_addr zone=one:10m rate=1r/s;\n    proxy_cache_key \"$scheme$request_method$host$request_uri\";\n}\n",
    ),
    (
        "apache2.conf",
        "ServerTokens OS\nServerSignature On\nKeepAlive On\nMaxKeepAliveRequests 100\nKeepAliveTimeout 5\nAccessFileName .htaccess\nSSLEngine on\nSSLCertificateFile /etc/ssl/certs/x.pem\nSSLCertificateKeyFile /etc/ssl/private/x.key\nSSLPassPhraseDialog exec:/usr/share/apache2/ask-for-passphrase\nProxyPass /app http://127.0.0.1:8080/app\nProxyPassReverse /app http://127.0.0.1:8080/app\nAuthType Basic\nAuthName \"Restricted Area\"\nAuthUserFile /etc/apache2/.htpasswd\nRequire valid-user\nSetEnvIf Authorization \"(.*)\" HTTP_AUTHORIZATION=$1\n",
    ),
    (
        "php.ini",
        "expose_php = Off\nmax_execution_time = 30\nmysqli.default_pw =\nmysqli.default_user =\nsession.name = PHPSESSID\nsession.cookie_httponly =\nsession.use_strict_mode = 0\nsession.sid_length = 26\nsession.gc_maxlifetime = 1440\nsession.trans_sid_tags = \"a=href,area=href,frame=src,form=\"\nodbc.default_pw = \"\"\nldap.max_links = -1\n;openssl.cafile=\n;sendmail_path =\n; Define the authentication method. Note that passing a password here is insecure.\n",
    ),
    (
        "dovecot",
        "disable_plaintext_auth = yes\nauth_mechanisms = plain login\nauth_cache_size = 0\nssl = required\nssl_cert = </etc/dovecot/private/dovecot.pem\nssl_key = </etc/dovecot/private/dovecot.key\nssl_key_password =\npassdb {\n  driver = pam\n  args = dovecot\n}\nuserdb {\n  driver = passwd\n}\n#auth_krb5_keytab =\n#auth_master_user_separator =\n# Password scheme: PLAIN, CRYPT, SHA512\n",
    ),
    (
        "postfix main.cf",
        "smtpd_banner = $myhostname ESMTP $mail_name\nsmtp_sasl_auth_enable = yes\nsmtp_sasl_password_maps = hash:/etc/postfix/sasl_passwd\nsmtp_sasl_security_options = noanonymous\nsmtpd_tls_cert_file=/etc/ssl/certs/ssl-cert-snakeoil.pem\nsmtpd_tls_key_file=/etc/ssl/private/ssl-cert-snakeoil.key\nsmtpd_tls_security_level=may\nsmtpd_relay_restrictions = permit_mynetworks permit_sasl_authenticated defer_unauth_destination\nalias_maps = hash:/etc/aliases\n",
    ),
    (
        "snmpd.conf",
        "sysLocation    Sitting on the Dock of the Bay\nsysContact     Me <me@example.org>\nagentaddress  127.0.0.1,[::1]\nview   systemonly  included   .1.3.6.1.2.1.1\nrocommunity  public default -V systemonly\nrouser authPrivUser authpriv -V systemonly\nincludeDir /etc/snmp/snmpd.conf.d\n#  Read-only access to everyone to the systemonly view\n",
    ),
    (
        "krb5.conf",
        "[libdefaults]\n\tdefault_realm = EXAMPLE.ORG\n\tforwardable = true\n\tticket_lifetime = 24h\n\tdefault_tkt_enctypes = aes256-cts-hmac-sha1-96\n[realms]\n\tEXAMPLE.ORG = {\n\t\tkdc = kdc1.example.org:88\n\t\tadmin_server = kdc1.example.org\n\t\tkpasswd_server = kdc1.example.org:464\n\t}\n[domain_realm]\n\t.example.org = EXAMPLE.ORG\n",
    ),
    (
        "ldap.conf",
        "BASE dc=example,dc=org\nURI ldap://ldap.example.org\nTLS_CACERT /etc/ssl/certs/ca-certificates.crt\nTLS_KEY /etc/ldap/key.pem\nSASL_AUTHCID me\npam_password md5\nbind_policy soft\nnss_initgroups_ignoreusers root,ldap\n",
    ),
    (
        "haproxy.cfg",
        "global\n    log /dev/log local0\n    ca-base /etc/ssl/certs\n    crt-base /etc/ssl/private\n    ssl-default-bind-ciphers ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256\n    ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets\ndefaults\n    mode http\n    timeout http-keep-alive 10s\n    errorfile 400 /etc/haproxy/errors/400.http\nfrontend f\n    bind :443 ssl crt /etc/haproxy/site.pem\n    http-request set-header X-Forwarded-Proto https\n    acl auth_ok http_auth(users)\n    stick-table type string len 64 size 100k expire 30m\n",
    ),
    (
        "prometheus.yml",
        "global:\n  scrape_interval: 15s\nscrape_configs:\n  - job_name: kubernetes\n    bearer_token_file: /var/run/secrets/kubernetes.io/serviceaccount/token\n    tls_config:\n      ca_file: /etc/ca.crt\n      key_file: /etc/client.key\n    basic_auth:\n      username: prom\n      password_file: /etc/prometheus/password\n    relabel_configs:\n      - source_labels: [__meta_kubernetes_pod_annotation_key]\n        target_label: key\n",
    ),
    (
        "grafana.ini",
        "[security]\n;admin_user = admin\n;disable_initial_admin_creation = false\n;cookie_secure = false\n;cookie_samesite = lax\n;login_remember_days = 7\n;token_rotation_interval_minutes = 10\n;disable_brute_force_login_protection = false\n[auth.generic_oauth]\n;enabled = false\n;client_id = some_id\n;token_url = https://foo.bar/login/oauth/access_token\n;api_url = https://foo.bar/user\n[auth]\n;login_cookie_name = grafana_session\n;oauth_auto_login = false\n[users]\n;password_hint = password\n",
    ),
    (
        "elasticsearch.yml",
        "cluster.name: my-application\npath.data: /var/lib/elasticsearch\nnetwork.host: 192.168.0.1\nhttp.port: 9200\nxpack.security.enabled: true\nxpack.security.authc.token.enabled: true\nxpack.security.authc.api_key.enabled: true\nxpack.security.http.ssl.keystore.path: certs/http.p12\nxpack.security.transport.ssl.verification_mode: certificate\nxpack.security.authc.password_hashing.algorithm: bcrypt\n",
    ),
    (
        "filebeat.yml",
        "filebeat.inputs:\n- type: log\n  paths:\n    - /var/log/*.log\noutput.elasticsearch:\n  hosts: [\"localhost:9200\"]\n  username: \"elastic\"\n  password: \"${ES_PWD}\"\n  #api_key: \"id:api_key\"\n  ssl.key: \"/etc/pki/client/cert.key\"\nprocessors:\n  - add_host_metadata: ~\n",
    ),
    (
        "daemon.json",
        "{\n  \"log-driver\": \"json-file\",\n  \"log-opts\": {\"max-size\": \"10m\"},\n  \"storage-driver\": \"overlay2\",\n  \"tlskey\": \"/etc/docker/key.pem\",\n  \"credsStore\": \"secretservice\",\n  \"userns-remap\": \"default\",\n  \"authorization-plugins\": []\n}\n",
    ),
    (
        "deployment",
        "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n      serviceAccountName: web\n      automountServiceAccountToken: false\n      imagePullSecrets:\n        - name: regcred\n      containers:\n        - name: web\n          env:\n            - name: DB_PASSWORD\n              valueFrom:\n                secretKeyRef:\n                  name: db\n                  key: password\n            - name: TOKEN_PATH\n              value: /var/run/token\n      volumes:\n        - name: certs\n          secret:\n            secretName: web-tls\n            items:\n              - key: tls.key\n                path: tls.key\n",
    ),
    (
        "configmap",
        "apiVersion: v1\nkind: ConfigMap\ndata:\n  app.ini: |\n    [server]\n    port = 80\n  log.level: info\nmetadata:\n  name: app\n",
    ),
    (
        "compose",
        "services:\n  db:\n    image: postgres:15\n    environment:\n      POSTGRES_USER: app\n      POSTGRES_PASSWORD_FILE: /run/secrets/db_password\n      POSTGRES_PASSWORD: ${DB_PASSWORD}\n    secrets:\n      - db_password\n    user: \"1000:1000\"\nsecrets:\n  db_password:\n    external: true\n",
    ),
    (
        "main.tf",
        "variable \"db_password\" {\n  type      = string\n  sensitive = true\n}\nresource \"aws_db_instance\" \"x\" {\n  username = var.db_user\n  password = var.db_password\n  kms_key_id = aws_kms_key.db.arn\n  storage_encrypted = true\n}\nresource \"random_password\" \"x\" {\n  length  = 16\n  special = true\n}\noutput \"secret_arn\" {\n  value = aws_secretsmanager_secret.x.arn\n}\n",
    ),
    (
        "ansible.cfg",
        "[defaults]\ninventory = /etc/ansible/hosts\nremote_user = root\nask_pass = False\nprivate_key_file = /path/to/file\nvault_password_file = ~/.vault_pass\nhost_key_checking = False\n[privilege_escalation]\nbecome = True\nbecome_method = sudo\nbecome_ask_pass = False\n",
    ),
    (
        "playbook",
        "- hosts: db\n  vars:\n    db_password: \"{{ vault_db_password }}\"\n    api_token: \"{{ lookup('env', 'API_TOKEN') }}\"\n  tasks:\n    - name: set the password of the user\n      user:\n        name: me\n        password: \"{{ pw | password_hash('sha512') }}\"\n        update_password: on_create\n      no_log: true\n    - name: add an apt key\n      apt_key:\n        url: https://download.example.org/key.gpg\n        keyring: /usr/share/keyrings/x.gpg\n",
    ),
    (
        "gitlab-ci",
        "variables:\n  GIT_DEPTH: 1\nbuild:\n  script:\n    - docker login -u $CI_REGISTRY_USER -p $CI_REGISTRY_PASSWORD $CI_REGISTRY\n    - echo \"$CI_REGISTRY_PASSWORD\" | docker login --password-stdin\n    - curl --header \"PRIVATE-TOKEN: $TOKEN\" https://x\n  cache:\n    key: ${CI_COMMIT_REF_SLUG}\n  secrets: {}\n",
    ),
    (
        "workflow",
        "on: push\npermissions:\n  contents: read\n  id-token: write\njobs:\n  a:\n    steps:\n      - uses: actions/checkout@8f4b7f84864484a7bf31766abe9204da3cbe65b3\n        with:\n          token: ${{ secrets.GITHUB_TOKEN }}\n          persist-credentials: false\n      - uses: actions/cache@v4\n        with:\n          key: ${{ runner.os }}-${{ hashFiles('Cargo.lock') }}\n    secrets: inherit\n",
    ),
    (
        "unit",
        "[Unit]\nDescription=Forward Password Requests to Wall\nDocumentation=man:systemd-ask-password-console.service(8)\nAfter=systemd-vconsole-setup.service keyboard-setup.service\n[Service]\nType=notify\nEnvironmentFile=-/etc/default/app\nEnvironment=LANG=C TOKEN_FILE=/run/app/token\nLoadCredential=db:/etc/app/db\nExecStart=/usr/bin/app --key-file /etc/app/key --auth-mode basic --token-ttl 3600\nPrivateTmp=yes\nKeyringMode=private\nUMask=0077\n",
    ),
    (
        "logrotate",
        "/var/log/auth.log\n{\n    rotate 4\n    weekly\n    missingok\n    compress\n    create 0640 root adm\n    postrotate\n        /usr/lib/rsyslog/rsyslog-rotate\n    endscript\n}\n",
    ),
    (
        "crontab",
        "SHELL=/bin/sh\nMAILTO=root\n17 * * * * root cd / && run-parts --report /etc/cron.hourly\n*/10 * * * * www-data curl -s http://localhost/cron?key=$CRON_KEY\n0 3 * * * root mysqldump --defaults-file=/root/backup.cnf --single-transaction app\n@daily root certbot renew --quiet\n",
    ),
    (
        "fstab",
        "UUID=2f1c9b1e-5a0f-4e0e-9a53-0d6f6a1b2c3d /               ext4    errors=remount-ro 0       1\nUUID=AB12-CD34 /boot/efi vfat umask=0077 0 1\n//nas/share /mnt cifs credentials=/etc/nas.cred,uid=1000,gid=1000 0 0\ntmpfs /tmp tmpfs defaults,noatime,mode=1777 0 0\n/dev/mapper/crypt-swap none swap sw 0 0\n",
    ),
    (
        "crypttab",
        "sda3_crypt UUID=2f1c9b1e-5a0f-4e0e-9a53-0d6f6a1b2c3d none luks,discard\ndata /dev/sdb1 /etc/keys/data.bin luks,key-slot=1\nswap /dev/sda4 /dev/urandom swap,cipher=aes-xts-plain64,size=512\n",
    ),
    (
        "sysctl.conf",
        "net.ipv4.tcp_syncookies = 1\nkernel.sysrq = 438\nkernel.keys.root_maxkeys = 1000000\nkernel.keys.maxbytes = 20000\nnet.core.rmem_max = 212992\nnet.ipv4.conf.all.accept_source_route = 0\nkernel.random.boot_id = 2f1c9b1e-5a0f-4e0e-9a53-0d6f6a1b2c3d\nkernel.auto_msgmni = 0\nvm.swappiness = 1\n",
    ),
    (
        "udev rules",
        "ACTION==\"add\", SUBSYSTEM==\"usb\", ATTR{idVendor}==\"1050\", ATTR{idProduct}==\"0407\", TAG+=\"security-token\", ENV{ID_SECURITY_TOKEN}=\"1\"\nSUBSYSTEM==\"input\", KERNEL==\"event*\", ENV{ID_INPUT_KEYBOARD}==\"1\", IMPORT{builtin}=\"keyboard\"\nKERNEL==\"tpm[0-9]*\", MODE=\"0660\", OWNER=\"tss\"\n",
    ),
    (
        "hwdb",
        "evdev:input:b0003v046Dp*\n KEYBOARD_KEY_c101a=playpause\n KEYBOARD_KEY_90001=volumedown\nevdev:atkbd:dmi:bvn*:bvr*:svnDell*\n KEYBOARD_KEY_88=wlan\n",
    ),
    (
        "limits.conf",
        "*               soft    core            0\n@student        hard    nproc           20\nroot            hard    nofile          65536\n#ftp             -       chroot          /ftp\n*               -       memlock         unlimited\n",
    ),
    (
        "sources.list",
        "deb [signed-by=/usr/share/keyrings/docker.gpg arch=amd64] https://download.docker.com/linux/debian bookworm stable\ndeb http://deb.debian.org/debian bookworm main contrib\ndeb-src http://security.debian.org/debian-security bookworm-security main\n",
    ),
    (
        "yum repo",
        "[base]\nname=CentOS-$releasever - Base\nmirrorlist=http://mirrorlist.example.org/?release=$releasever&arch=$basearch\ngpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-CentOS-7\nsslclientkey=/etc/pki/entitlement/1-key.pem\nenabled=1\n",
    ),
    (
        "chrony.conf",
        "pool 2.debian.pool.ntp.org iburst\nkeyfile /etc/chrony/chrony.keys\ndriftfile /var/lib/chrony/chrony.drift\nntsdumpdir /var/lib/chrony\nmakestep 1 3\nrtcsync\nlogdir /var/log/chrony\n",
    ),
    (
        "rsyslog.conf",
        "module(load=\"imuxsock\")\nauth,authpriv.*\t\t\t/var/log/auth.log\n*.*;auth,authpriv.none\t\t-/var/log/syslog\n$FileOwner root\n$DefaultNetstreamDriverKeyFile /etc/ssl/key.pem\n$ActionSendStreamDriverAuthMode x509/name\nmail.*\t\t\t\t-/var/log/mail.log\n",
    ),
    (
        "jail.conf",
        "[sshd]\nenabled = true\nfilter = sshd\nport = ssh\nlogpath = /var/log/auth.log\nmaxretry = 5\nbantime = 10m\n[DEFAULT]\nmode = normal\nfailregex = ^Authentication failure for .* from <HOST>$\n            ^Failed (?:password|publickey) for .* from <HOST>$\nignoreregex =\n",
    ),
    (
        "iptables",
        "*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -m recent --name portscan --rcheck --seconds 86400 -j DROP\nCOMMIT\n",
    ),
    (
        "zone",
        "$TTL 86400\n@ IN SOA ns1.example.org. admin.example.org. ( 2026112201 3600 900 604800 86400 )\n@ IN DNSKEY 257 3 13 mdsswUyr3DPW132mOi8V9xESWE8jTo0dxCjjnopKl+GqJxpVXckHAeF+KkxLbxILfDLUT0rAK9iUzy1L53eKGQ==\nmail._domainkey IN TXT \"v=DKIM1; k=rsa; p=MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA3J8rQ2vZ\"\nwww IN A 192.0.2.1\n_443._tcp IN TLSA 3 1 1 0c72ac70b745ac19998811b131d662c9ac69dbdbe7cb23e5b514b56664c5d3d6\n",
    ),
    (
        "unbound.conf",
        "server:\n    auto-trust-anchor-file: \"/var/lib/unbound/root.key\"\n    interface: 127.0.0.1\n    access-control: 127.0.0.0/8 allow\n    private-address: 10.0.0.0/8\n    hide-identity: yes\nremote-control:\n    control-enable: yes\n    server-key-file: \"/etc/unbound/unbound_server.key\"\n    control-key-file: \"/etc/unbound/unbound_control.key\"\n",
    ),
    (
        "named.conf.options",
        "options {\n    directory \"/var/cache/bind\";\n    dnssec-validation auto;\n    managed-keys-directory \"/var/cache/bind\";\n    allow-update { key ddns-key; };\n    listen-on-v6 { any; };\n};\ncontrols { inet 127.0.0.1 allow { localhost; } keys { rndc-key; }; };\ninclude \"/etc/bind/rndc.key\";\n",
    ),
    (
        "NetworkManager.conf",
        "[main]\nplugins=ifupdown,keyfile\n[ifupdown]\nmanaged=false\n[keyfile]\nunmanaged-devices=none\n[device]\nwifi.scan-rand-mac-address=no\nwifi.backend=wpa_supplicant\n[connectivity]\nenabled=false\n",
    ),
    (
        "interfaces",
        "auto lo\niface lo inet loopback\nallow-hotplug eth0\niface eth0 inet static\n    address 192.0.2.10/24\n    gateway 192.0.2.1\n    dns-nameservers 192.0.2.53\n    wpa-conf /etc/wpa_supplicant/wpa.conf\n    wpa-key-mgmt WPA-PSK\n",
    ),
    (
        "grub",
        "GRUB_DEFAULT=0\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\nGRUB_CMDLINE_LINUX=\"rd.luks.uuid=luks-2f1c9b1e-5a0f-4e0e-9a53-0d6f6a1b2c3d rd.luks.key=/keyfile systemd.unified_cgroup_hierarchy=1\"\nGRUB_TERMINAL_INPUT=\"at_keyboard\"\nGRUB_ENABLE_CRYPTODISK=y\n",
    ),
    (
        "keyboard",
        "XKBMODEL=\"pc105\"\nXKBLAYOUT=\"us\"\nXKBVARIANT=\"\"\nXKBOPTIONS=\"compose:menu,caps:ctrl_modifier\"\nBACKSPACE=\"guess\"\nKEYMAP=us\nKEYTABLE=us\n",
    ),
    (
        "bashrc",
        "case $- in\n    *i*) ;;\n      *) return;;\nesac\nHISTCONTROL=ignoreboth\nHISTSIZE=1000\nalias ll='ls -alF'\nexport EDITOR=vim\nexport GPG_TTY=$(tty)\nexport SSH_AUTH_SOCK=$XDG_RUNTIME_DIR/ssh-agent.socket\nexport API_TOKEN=$(pass show api/token)\nread -s -p \"Password: \" password\nif [ -z \"$PASSWORD\" ]; then echo \"no password given\"; fi\nbind '\"\\e[A\": history-search-backward'\n",
    ),
    (
        "gitconfig",
        "[user]\n\tname = Me\n\temail = me@example.org\n\tsigningkey = ABCDEF0123456789\n[commit]\n\tgpgsign = true\n[credential]\n\thelper = store\n[url \"git@github.com:\"]\n\tinsteadOf = https://github.com/\n[core]\n\tsshCommand = ssh -i ~/.ssh/id_ed25519\n",
    ),
    (
        "settings.xml",
        "<settings>\n  <servers>\n    <server>\n      <id>releases</id>\n      <username>deploy</username>\n      <password>${env.MAVEN_PASSWORD}</password>\n      <privateKey>${user.home}/.ssh/id_dsa</privateKey>\n      <passphrase></passphrase>\n    </server>\n  </servers>\n</settings>\n",
    ),
    (
        "core-site.xml",
        "<configuration>\n  <property>\n    <name>fs.defaultFS</name>\n    <value>hdfs://nn:8020</value>\n  </property>\n  <property>\n    <name>hadoop.security.authentication</name>\n    <value>simple</value>\n  </property>\n  <property>\n    <name>hadoop.http.authentication.signature.secret.file</name>\n    <value>/etc/hadoop/http-auth</value>\n  </property>\n  <property>\n    <name>hadoop.security.credential.provider.path</name>\n    <value>jceks://hdfs/x.jceks</value>\n  </property>\n</configuration>\n",
    ),
    (
        "server.properties",
        "broker.id=0\nlisteners=SASL_SSL://:9093\nsasl.enabled.mechanisms=SCRAM-SHA-512\nsecurity.inter.broker.protocol=SASL_SSL\nssl.keystore.location=/etc/kafka/keystore.jks\nssl.keystore.type=PKCS12\nssl.client.auth=required\nauthorizer.class.name=kafka.security.authorizer.AclAuthorizer\ndelegation.token.max.lifetime.ms=604800000\npassword.encoder.iterations=4096\nlog.retention.hours=168\n",
    ),
    (
        "cassandra.yaml",
        "cluster_name: 'Test Cluster'\nnum_tokens: 16\nauthenticator: AllowAllAuthenticator\nauthorizer: AllowAllAuthorizer\ncredentials_validity: 2000ms\nkey_cache_size:\nkey_cache_save_period: 4h\npartitioner: org.apache.cassandra.dht.Murmur3Partitioner\nserver_encryption_options:\n    internode_encryption: none\n    keystore: conf/.keystore\n    require_client_auth: false\ninitial_token:\n",
    ),
    (
        "mongod.conf",
        "storage:\n  dbPath: /var/lib/mongodb\nnet:\n  port: 27017\n  tls:\n    certificateKeyFile: /etc/ssl/mongodb.pem\nsecurity:\n  authorization: enabled\n  keyFile: /etc/mongodb/keyfile\n  clusterAuthMode: keyFile\n",
    ),
    (
        "smb.conf",
        "[global]\n   workgroup = WORKGROUP\n   server role = standalone server\n   obey pam restrictions = yes\n   unix password sync = yes\n   passwd program = /usr/bin/passwd %u\n   passwd chat = *Enter\\snew\\s*\\spassword:* %n\\n *Retype\\snew\\s*\\spassword:* %n\\n *password\\supdated\\ssuccessfully* .\n   pam password change = yes\n   map to guest = bad user\n   encrypt passwords = true\n   null passwords = no\n   passdb backend = tdbsam\n",
    ),
    (
        "lvm.conf",
        "devices {\n\tdir = \"/dev\"\n\tscan = [ \"/dev\" ]\n\tuse_devicesfile = 0\n}\nglobal {\n\tumask = 077\n\tlocking_type = 1\n\tthin_check_executable = \"/usr/sbin/thin_check\"\n}\n# Configuration option global/use_lvmlockd.\n",
    ),
    (
        "zabbix_agentd.conf",
        "PidFile=/run/zabbix/zabbix_agentd.pid\nServer=127.0.0.1\nListenPort=10050\nTLSConnect=psk\nTLSAccept=psk\nTLSPSKIdentity=PSK 001\nTLSPSKFile=/etc/zabbix/agent.psk\nTimeout=3\nUserParameter=mysql.ping,mysqladmin ping\n",
    ),
    (
        "package-lock.json",
        "{\n  \"name\": \"x\",\n  \"node_modules/js-tokens\": {\n    \"version\": \"4.0.0\",\n    \"resolved\": \"https://registry.npmjs.org/js-tokens/-/js-tokens-4.0.0.tgz\",\n    \"integrity\": \"sha512-RdJUflcE3cUzKiMqQgsCu06FPu9UdIJO0beYbPhHN4k6apgJtifcoCtT9bcxOpYBtpD2kCM6Sbzg4CausW/PKQ==\"\n  },\n  \"keywords\": [\"token\", \"secret\", \"password\"]\n}\n",
    ),
    (
        "Cargo.lock",
        "[[package]]\nname = \"secrecy\"\nversion = \"0.8.0\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"9bd1c54ea06cfd2f6b63219704de0b9b4f72dcc2b8fdef820be6cd799780e91e\"\n[[package]]\nname = \"keyring\"\nversion = \"2.3.3\"\n",
    ),
    (
        "known_hosts",
        "github.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n|1|J8dJz1sEpTXv0RxjWWlQ3cJ7QmI=|x9Yb2kR3vQ8mWp7RtY8sBnCc4DA= ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=\n",
    ),
    (
        "authorized_keys",
        "restrict,command=\"/usr/bin/rrsync /srv\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@token-host\nssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC3J8dJz1sEpTXv0RxjWWlQ3cJ7QmJXo1nXyT6bBqgVfEQ me\n",
    ),
    (
        "certificate",
        "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ\nRTESMBAGA1UEChMJQmFsdGltb3JlMRMwEQYDVQQLEwpDeWJlclRydXN0MSIwIAYD\n-----END CERTIFICATE-----\n",
    ),
    (
        "os-release",
        "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\nHOME_URL=\"https://www.debian.org/\"\n",
    ),
    (
        "passwd",
        "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\ntss:x:107:112:TPM software stack,,,:/var/lib/tpm:/bin/false\n",
    ),
    (
        "meminfo",
        "MemTotal:       16303428 kB\nMemFree:         1203428 kB\nKReclaimable:     503428 kB\nSecPageTables:         0 kB\nVmallocTotal:   34359738367 kB\nHugePages_Total:       0\n",
    ),
    (
        "cmdline",
        "BOOT_IMAGE=/boot/vmlinuz-6.1.0-18-amd64 root=UUID=2f1c9b1e-5a0f-4e0e-9a53-0d6f6a1b2c3d ro quiet init=/bin/systemd keyboard=us module.sig_enforce=1\n",
    ),
    (
        "dbus policy",
        "<busconfig>\n  <policy user=\"root\">\n    <allow own=\"org.freedesktop.secrets\"/>\n    <allow send_destination=\"org.freedesktop.login1\" send_interface=\"org.freedesktop.DBus.Properties\"/>\n  </policy>\n  <auth>EXTERNAL</auth>\n  <limit name=\"auth_timeout\">240000</limit>\n  <limit name=\"max_incoming_bytes\">1000000000</limit>\n</busconfig>\n",
    ),
    (
        "polkit",
        "polkit.addRule(function(action, subject) {\n    if (action.id == \"org.freedesktop.login1.manage\" && subject.isInGroup(\"wheel\")) {\n        return polkit.Result.AUTH_ADMIN_KEEP;\n    }\n});\n",
    ),
    (
        "vault.hcl",
        "ui = true\nstorage \"raft\" {\n  path = \"/opt/vault/data\"\n}\nlistener \"tcp\" {\n  address = \"0.0.0.0:8200\"\n  tls_cert_file = \"/opt/vault/tls/tls.crt\"\n  tls_key_file = \"/opt/vault/tls/tls.key\"\n}\nseal \"awskms\" {\n  kms_key_id = \"2f1c9b1e-5a0f-4e0e-9a53-0d6f6a1b2c3d\"\n}\ndefault_lease_ttl = \"168h\"\n",
    ),
    (
        "logwatch",
        "LogDir = /var/log\nMailTo = root\nDetail = Low\nService = All\nService = \"-zz-network\"\n# The default is to not show passwords in clear text\n",
    ),
];
