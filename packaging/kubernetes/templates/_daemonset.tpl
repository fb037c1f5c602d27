{{- /* Changes the template of the pods. It prints nothing. */ -}}
{{- define "mitra.daemonset" }}
{{- $values := .values }}
{{- $pod := .template.spec }}
{{- /* send, notify and upload read their tables when they start. */ -}}
{{- $_ := set .template.metadata "annotations" (dict "checksum/config" (sha256sum .config)) }}
{{- range $key := list "tolerations" "affinity" "imagePullSecrets" "priorityClassName" }}
{{- with get $values $key }}{{ $_ := set $pod $key . }}{{ end }}
{{- end }}
{{- $_ := mergeOverwrite $pod.nodeSelector $values.nodeSelector }}

{{- $archive := "" }}
{{- $volumes := list }}
{{- range $volume := $pod.volumes }}
{{- with get $values.paths $volume.name }}{{ $_ := set $volume.hostPath "path" . }}{{ end }}
{{- if eq $volume.name "archive" }}{{ $archive = $volume.hostPath.path }}{{ end }}
{{- if and (eq $volume.name "tls") $values.tlsSecret }}{{ $_ := set $volume.secret "secretName" $values.tlsSecret }}{{ end }}
{{- if or $values.containers.serve (not (has $volume.name (list "tls" "serve-tmp"))) }}{{ $volumes = append $volumes $volume }}{{ end }}
{{- end }}

{{- $serve := dict }}
{{- $containers := list }}
{{- $replaced := dict "2G" $values.maxBytes "--listen=0.0.0.0:6174" (printf "--listen=0.0.0.0:%d" (int $values.port)) }}
{{- range $container := $pod.containers }}
{{- $args := list }}
{{- range $arg := $container.args }}{{ $args = append $args (get $replaced $arg | default $arg) }}{{ end }}
{{- $_ := set $container "args" $args }}
{{- range $port := $container.ports }}{{ $_ := set $port "containerPort" (int $values.port) }}{{ end }}
{{- with $container.readinessProbe.tcpSocket }}{{ $_ := set . "port" (int $values.port) }}{{ end }}
{{- if eq $container.name "serve" }}{{ $serve = $container }}{{ end }}
{{- if or (ne $container.name "serve") $values.containers.serve }}{{ $containers = append $containers $container }}{{ end }}
{{- end }}

{{- /* The others have the privileges of `serve`, which are none. What they write is a folder of their own beside the recording. */ -}}
{{- range $name := list "send" "notify" "upload" }}
{{- if get $values.containers $name }}
{{- $tmp := printf "%s-tmp" $name }}
{{- $args := list $name "--archive=/var/lib/mitra" }}
{{- $mounts := list (dict "name" "archive" "mountPath" "/var/lib/mitra" "readOnly" true) (dict "name" "config" "mountPath" "/etc/mitra" "readOnly" true) (dict "name" $tmp "mountPath" "/tmp") }}
{{- $volumes = append $volumes (dict "name" $tmp "emptyDir" (dict "medium" "Memory" "sizeLimit" "64Mi")) }}
{{- if ne $name "upload" }}
{{- $state := printf "%s-state" $name }}
{{- $folder := printf "/var/lib/mitra/%s" $name }}
{{- $args = append $args (printf "--state=%s" $folder) }}
{{- $mounts = append $mounts (dict "name" $state "mountPath" $folder) }}
{{- $volumes = append $volumes (dict "name" $state "hostPath" (dict "path" (printf "%s/%s" $archive $name) "type" "DirectoryOrCreate")) }}
{{- end }}
{{- if $values.credentialsSecret }}
{{- $mounts = append $mounts (dict "name" "credentials" "mountPath" "/etc/mitra-credentials" "readOnly" true) }}
{{- end }}
{{- $container := omit (deepCopy $serve) "ports" "readinessProbe" }}
{{- $_ := set $container "name" $name }}
{{- $_ := set $container "args" $args }}
{{- $_ := set $container "volumeMounts" $mounts }}
{{- $containers = append $containers $container }}
{{- end }}
{{- end }}
{{- if and $values.credentialsSecret (or $values.containers.send $values.containers.notify $values.containers.upload) }}
{{- $volumes = append $volumes (dict "name" "credentials" "secret" (dict "secretName" $values.credentialsSecret "defaultMode" 256)) }}
{{- end }}

{{- range $container := $containers }}
{{- with $values.image }}{{ $_ := set $container "image" . }}{{ end }}
{{- $_ := mergeOverwrite $container.resources (get $values.resources $container.name | default (dict)) }}
{{- end }}
{{- $_ := set $pod "containers" $containers }}
{{- $_ := set $pod "volumes" $volumes }}
{{- end }}
