{{/* A Pod of `helm test`, which runs `crawljob-operator check`. Takes the root, what is checked, the ServiceAccount and
     the arguments. It goes when all of them have passed; after a failure it stays, so that its log can be read. */}}
{{- define "durable-crawler.check" -}}
{{- $root := index . 0 -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "durable-crawler.name" $root }}-{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  {{- include "durable-crawler.hook" (list $root 0) | nindent 2 }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ index . 2 }}
  {{- include "durable-crawler.podSpec" $root | nindent 2 }}
  containers:
    - name: check
      image: {{ include "durable-crawler.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command: ["crawljob-operator", "check", {{ index . 1 | quote }}{{ range index . 3 }}, {{ . | quote }}{{ end }}]
      {{- with $root.Values.watchNamespaces }}
      env:
        - name: WATCH_NAMESPACES
          value: {{ join "," . | quote }}
      {{- end }}
      {{- with $root.Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- include "durable-crawler.containerSecurity" $root | nindent 6 }}
{{- end -}}

{{- define "durable-crawler.hook" -}}
{{- $root := index . 0 -}}
labels:
  {{- $labels := include "durable-crawler.labels" $root | fromYaml }}
  {{- toYaml (merge (dict "app.kubernetes.io/component" "check") $labels) | nindent 2 }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ index . 1 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  helm.sh/hook-output-log-policy: hook-succeeded,hook-failed
{{- end -}}
