# syntax=docker/dockerfile:1
# make image builds it; so does docker build .

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
ARG COMMIT
ARG DATE
RUN make build VERSION="$VERSION" COMMIT="$COMMIT" DATE="$DATE" && mkdir data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/bin/controllerd /controllerd
# For serve --embedded-etcd: a volume here belongs to the user.
COPY --from=build --chown=65532:65532 /src/data /var/lib/controllerd
USER 65532:65532
EXPOSE 7070 9170
HEALTHCHECK --interval=10s --timeout=5s CMD ["/controllerd", "controller", "status", "--timeout", "4s"]
ENTRYPOINT ["/controllerd"]
CMD ["serve", "--listen", ":7070", "--metrics-listen", ":9170"]
