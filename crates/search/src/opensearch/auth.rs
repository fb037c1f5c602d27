//! The `Authorization` header. Its value never appears in messages or debug output.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mitra_http::secret;

use crate::error::Error;

use super::Settings;

/// The value of `Authorization`, if one is configured.
#[derive(Clone, Default)]
pub(super) struct Credentials(Option<String>);

impl Credentials {
    /// Reads the files that the settings name.
    pub fn read(settings: &Settings) -> Result<Self, Error> {
        let header = match (&settings.api_key_file, &settings.user, &settings.password_file) {
            (Some(file), None, None) => Some(format!("ApiKey {}", secret(file)?)),
            (None, Some(user), Some(file)) => {
                if user.contains(':') || user.chars().any(char::is_control) {
                    return Err(Error::Cannot(
                        "a user's name has no colon and no control characters".to_owned(),
                    ));
                }
                Some(format!("Basic {}", STANDARD.encode(format!("{user}:{}", secret(file)?))))
            }
            (None, None, None) => None,
            (Some(_), _, _) => {
                return Err(Error::Cannot(
                    "wanted an API key or a user with a password, not both".to_owned(),
                ));
            }
            (None, user, _) => {
                let (has, lacks) =
                    if user.is_some() { ("user", "password file") } else { ("password file", "user") };
                return Err(Error::Cannot(format!("a {has} without a {lacks}")));
            }
        };
        Ok(Self(header))
    }

    /// Whether requests carry no secret.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The header's value.
    pub fn header(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Credentials(…)" } else { "Credentials(none)" })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use super::*;

    fn file(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn headers_are_made_of_files_that_nobody_else_may_read() {
        let dir = tempfile::tempdir().unwrap();
        let password = file(dir.path(), "password", "sesame\n", 0o600);
        let basic =
            Settings { user: Some("mitra".into()), password_file: Some(password), ..Settings::default() };
        assert_eq!(Credentials::read(&basic).unwrap().header(), Some("Basic bWl0cmE6c2VzYW1l"));
        let key = file(dir.path(), "key", "a2V5", 0o400);
        let api = Settings { api_key_file: Some(key), ..Settings::default() };
        assert_eq!(Credentials::read(&api).unwrap().header(), Some("ApiKey a2V5"));
        assert_eq!(Credentials::read(&Settings::default()).unwrap().header(), None);
        let both = Settings { api_key_file: api.api_key_file, ..basic };
        assert!(Credentials::read(&both).is_err());
    }

    #[test]
    fn a_secret_is_in_no_message() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text, mode) in
            [("open", "sesame", 0o640), ("two", "sesame\nsesame2", 0o600), ("none", "\n", 0o600)]
        {
            let path = file(dir.path(), name, text, mode);
            let error =
                Credentials::read(&Settings { api_key_file: Some(path), ..Settings::default() }).unwrap_err();
            assert!(!error.to_string().contains("sesame") && error.to_string().contains(name), "{error}");
        }
        let path = file(dir.path(), "key", "sesame", 0o600);
        let read = Credentials::read(&Settings { api_key_file: Some(path), ..Settings::default() }).unwrap();
        assert!(!format!("{read:?}").contains("sesame"));
    }
}
