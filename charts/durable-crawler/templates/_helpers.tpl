{{/* The name of everything that belongs to the release: its own name, with the chart's unless it says so already. */}}
{{- define "durable-crawler.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "durable-crawler.serviceAccountName" -}}
{{- if or .Values.serviceAccount.create .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name | default (include "durable-crawler.name" .) -}}
{{- else -}}
{{- fail "serviceAccount.create is false: say in serviceAccount.name which ServiceAccount the operator runs with." -}}
{{- end -}}
{{- end -}}

{{/* What selects the operator's Pod; a Deployment's selector never changes, so nothing with a version is in here. */}}
{{- define "durable-crawler.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "durable-crawler.labels" -}}
{{ include "durable-crawler.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Those and more; of a label that is in both, the chart's own stays. Takes the root and the labels. */}}
{{- define "durable-crawler.labelsAnd" -}}
{{- toYaml (merge (include "durable-crawler.labels" (index . 0) | fromYaml) (index . 1)) -}}
{{- end -}}

{{- define "durable-crawler.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* What every Pod of the chart has in its spec: no value weakens the restricted profile. */}}
{{- define "durable-crawler.podSpec" -}}
automountServiceAccountToken: true
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "durable-crawler.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
{{- end -}}

{{/* Ends the rendering, with a sentence, where a kind of the Prometheus Operator is asked for and missing.
     Takes the root, the kind and the value that asks for it. */}}
{{- define "durable-crawler.needsPrometheusOperator" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 1 -}}
{{- $apis := $root.Capabilities.APIVersions -}}
{{- if not (or ($apis.Has "monitoring.coreos.com/v1") ($apis.Has (printf "monitoring.coreos.com/v1/%s" $kind))) -}}
{{- fail (printf "%s asks for a %s, but the cluster has no API monitoring.coreos.com/v1: install the Prometheus Operator first, or, for a rendering without a cluster, say --api-versions monitoring.coreos.com/v1." (index . 2) $kind) -}}
{{- end -}}
{{- end -}}
