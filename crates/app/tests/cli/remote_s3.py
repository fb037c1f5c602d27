"""An object store in memory that checks signatures: moto, with one user and one bucket. Prints its address, the key and its secret;
ends with its standard input."""

import logging
import sys
import urllib.request

import boto3
from moto.server import ThreadedMotoServer

# A line for each request would fill the pipe of whoever does not read them.
logging.getLogger("werkzeug").setLevel(logging.WARNING)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
url = f"http://{host}:{port}"
free = {"endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}
boto3.client("s3", **free).create_bucket(Bucket="recordings")
iam = boto3.client("iam", **free)
iam.create_user(UserName="mitra")
policy = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:ListBucket","s3:GetObject","s3:PutObject"],"Resource":"*"}]}'
iam.put_user_policy(UserName="mitra", PolicyName="mitra", PolicyDocument=policy)
key = iam.create_access_key(UserName="mitra")["AccessKey"]
# Objects that stand for a month before: DAYS of them, 144 a day, of so many bytes.
if len(sys.argv) == 4:
    import datetime

    s3 = boto3.client("s3", **free)
    end, days, size = datetime.datetime.fromtimestamp(int(sys.argv[1]), datetime.UTC), int(sys.argv[2]), int(sys.argv[3])
    form = "%Y%m%dT%H%M%SZ"
    for i in range(days * 144, 0, -1):
        since, until = end - datetime.timedelta(minutes=10 * i), end - datetime.timedelta(minutes=10 * (i - 1))
        name = f"{9_000_000 - i:010}-{since:{form}}-{until:{form}}.seg"
        s3.put_object(Bucket="recordings", Key=f"mitra/simulated/{since:%Y-%m-%d}/{name}", Body=bytes(size))
# From now on each request is checked.
kind = {"Content-Type": "text/plain"}
urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset-auth", data=b"0", headers=kind, method="POST"))
print(url, key["AccessKeyId"], key["SecretAccessKey"], flush=True)
sys.stdin.read()
